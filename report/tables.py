"""The parts of the documentation that are made from the code: `python -m draftproof.report.tables` writes them.

Each stands between two comments that name it; what is around them is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from draftproof.properties.lib.files import write_whole
from draftproof.report import channel_tables, feature_tables, scenario_tables
from draftproof.report.definitions import contents
from draftproof.report.markdown import written


class MadePart(NamedTuple):
    """A part that is made: its page, the name in its comments, and what makes it."""

    page: str
    name: str
    make: Callable[[], str]


TABLES: tuple[MadePart, ...] = (
    MadePart("docs/semantics/README.md", "chapters", contents),
    MadePart("docs/semantics/channels.md", "channels", channel_tables.channels),
    MadePart("docs/semantics/channels.md", "structs", channel_tables.structs),
    MadePart("docs/semantics/channels.md", "enums", channel_tables.enums),
    MadePart("docs/semantics/plan.md", "scenario", scenario_tables.fields),
    MadePart("docs/semantics/plan.md", "scenario-limits", scenario_tables.limits),
    MadePart("docs/semantics/beside.md", "overview", feature_tables.overview),
    MadePart("docs/semantics/beside.md", "pairs", feature_tables.beside),
    MadePart("docs/cli.md", "features", feature_tables.features),
)


def main() -> None:
    """Write the parts into the pages of this repository. Raises TableError."""
    for page, name, make in TABLES:
        path = Path(__file__).resolve().parent.parent / page
        write_whole(path, written(path.read_text(encoding="utf-8"), name, make()))


if __name__ == "__main__":
    main()
