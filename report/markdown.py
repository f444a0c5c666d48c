"""Parts of Markdown pages that are made and not written: tables, anchors, and a place for them between two comments."""

from __future__ import annotations

import re
from collections.abc import Iterable

from draftproof.properties.lib.errors import DraftproofError


class TableError(DraftproofError, ValueError):
    """A page has no place for a table; the message says which."""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table with a head."""
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def anchor(heading: str) -> str:
    """Return the anchor that GitHub and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def written(page: str, name: str, made: str) -> str:
    """Return a page with what is made between its two comments of a name. Raises TableError if it has none."""
    pattern = re.compile(rf"(<!-- {name} -->\n\n).*?(\n\n<!-- /{name} -->)", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise TableError(f"invalid page: expected <!-- {name} --> and <!-- /{name} --> once, with lines between")
    return pattern.sub(lambda found: found[1] + made + found[2], page)
