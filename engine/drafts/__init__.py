"""Draft algorithms, each in the module of its name.

A module calls its `Draft` ALGORITHM, and has `probe(parts)`, which makes the model of a probe scenario's draft.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from draftproof.engine.drafts.base import Draft
from draftproof.engine.models.base import Network, NgramSettings
from draftproof.engine.models.probe import ProbeParts


def algorithm(name: str) -> type[Draft[Any]]:
    """Return the class of a draft algorithm. Raises ValueError for a name that no module has."""
    found: type[Draft[Any]] = _module(name).ALGORITHM
    return found


def probe_model(name: str, parts: ProbeParts) -> Network | NgramSettings:
    """Return the model that a draft runs in a probe scenario. Raises ValueError for a name that no module has."""
    model: Network | NgramSettings = _module(name).probe(parts)
    return model


def _module(name: str) -> ModuleType:
    try:
        module = import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise ValueError(f"invalid draft algorithm {name!r}: expected the name of a module of engine/drafts") from error
    if not hasattr(module, "ALGORITHM"):
        raise ValueError(f"invalid draft algorithm {name!r}: expected the name of a module of engine/drafts")
    return module
