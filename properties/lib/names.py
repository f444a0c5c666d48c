"""Names that users give: of what makes a subject, of contracts, and of one thing among several."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def is_factory_name(name: str) -> bool:
    """Return True for "package.module:name"."""
    module, _, attribute = name.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def group_of(contract: str) -> str:
    """Return the name of a contract's group: `draft` of `draft.ids`."""
    return contract.partition(".")[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" with the nearest known name; "" if none is near."""
    # Of three letters two alike are chance: "gpu" is no slip of "cpu".
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7 if len(name) <= 3 else 0.6)
    return f"; did you mean {near[0]}?" if near else ""
