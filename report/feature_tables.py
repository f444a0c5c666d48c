"""The tables of features in the documentation, made from their rows: `python -m draftproof.report.feature_tables`.

Each stands between two comments that name it; what is around them is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from draftproof.properties.features import FEATURES
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.files import write_whole
from draftproof.properties.values.drafts import KINDS


class TableError(DraftproofError, ValueError):
    """A page has no place for a table; the message says which."""


def beside() -> str:
    """Return what is not defined together: features with each other, with drafts and with checkpoints, and why."""
    return _table(("feature", "never beside", "because"), _pairs())


def features() -> str:
    """Return every feature with what a scenario of it has."""
    return _table(("feature", "what a scenario has"), ((f"`{one.name}`", one.what) for one in FEATURES))


PAGES: Mapping[str, Callable[[], str]] = {"docs/semantics.md": beside, "docs/cli.md": features}
"""Pages, each with its table."""


def written(page: str, table: str) -> str:
    """Return a page with a table between its two comments. Raises TableError if it has none."""
    pattern = re.compile(r"(<!-- features -->\n\n).*?(\n\n<!-- /features -->)", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise TableError("invalid page: expected <!-- features --> and <!-- /features --> once, with lines between")
    return pattern.sub(lambda found: found[1] + table + found[2], page)


def main() -> None:
    """Write the tables into the pages of this repository. Raises TableError."""
    for name, table in PAGES.items():
        path = Path(__file__).resolve().parent.parent / name
        write_whole(path, written(path.read_text(encoding="utf-8"), table()))


def _pairs() -> Iterator[tuple[str, str, str]]:
    for one in FEATURES:
        yield from ((f"`{one.name}`", f"`{other}`", because) for other, because in one.refuses.items())
        if others := ", ".join(f"`{kind.name}`" for kind in KINDS if not one.drafts(kind)):
            yield f"`{one.name}`", f"a draft {others}", one.because
        if one.of_probes:
            yield f"`{one.name}`", "a checkpoint", "it is defined for probes"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    main()
