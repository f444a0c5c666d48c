"""SGLang: a released engine, or functions of its wheel, each part a subject that runs them in our engine."""

from __future__ import annotations

import importlib
from typing import Literal

from draftproof.properties.values.subject import Subject
from draftproof.subjects.making import called

Part = Literal["engine", "adaptive", "commit", "config", "dflash", "draft", "extend", "mtp", "pools"]
PARTS: dict[Part, tuple[str, str]] = {
    "engine": ("draftproof.subjects.sglang.live.subject", "SglangEngine"),
    "adaptive": ("draftproof.subjects.sglang.policy", "AdaptivePolicy"),
    "commit": ("draftproof.subjects.sglang.commit", "StateCommit"),
    "config": ("draftproof.subjects.sglang.config", "DraftConfig"),
    "dflash": ("draftproof.subjects.sglang.dflash", "BlockAcceptance"),
    "draft": ("draftproof.subjects.sglang.draft_decode", "DraftDecode"),
    "extend": ("draftproof.subjects.sglang.eagle_extend", "EagleExtend"),
    "mtp": ("draftproof.subjects.sglang.mtp", "ChainExtend"),
    "pools": ("draftproof.subjects.sglang.pools", "PoolSteps"),
}


def sglang(part: Part = "engine", **settings: str) -> Subject:
    """Return the engine, or a part of a release, with the settings that are its own. Raises what making it raises."""
    module, name = PARTS[part]
    return called("sglang", getattr(importlib.import_module(module), name), settings)
