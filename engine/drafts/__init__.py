"""Draft algorithms, each in the module of its name, which calls its `Draft` ALGORITHM."""

from __future__ import annotations

from importlib import import_module

from draftproof.engine.drafts.base import Draft


def algorithm(name: str) -> type[Draft]:
    """The class of a draft algorithm. Raises ValueError for a name that no module has."""
    try:
        found: type[Draft] = import_module(f"{__name__}.{name}").ALGORITHM
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"draft algorithm is {name!r}, allowed: a module of engine/drafts that has one") from error
    return found
