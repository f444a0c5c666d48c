"""One tiny scenario, run on the built-in engine, and what it reports: the worked examples of docs/semantics/ use it.

    PYTHONPATH=examples python
    >>> from worked import scenario, show
    >>> show(scenario((3, 1)), "verify.ids accept.correct_len", round=1)

A round is given as (drafts wanted, drafts that are forced to be right); -1 forces none. Every run is judged first, so
that what is shown is what the reference says, too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import draftproof
from draftproof.subject import (
    DFlash,
    Eagle,
    Eagle3,
    Graphs,
    Key,
    Linear,
    Memory,
    Mtp,
    Ngram,
    ProbeModel,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    Standalone,
    Trace,
)

_SIZES = {"seed": 2, "heads": 1, "kv_heads": 1, "key_dim": 2, "value_dim": 2, "lanes": 4}
DRAFTS: dict[str, Any] = {
    "eagle": Eagle(**_SIZES),
    "eagle3": Eagle3(**_SIZES, features=(0,)),
    "mtp": Mtp(**_SIZES, layers=3),
    "dflash": DFlash(**_SIZES, layers=1, features=(0,)),
    "ngram": Ngram(max_n=3),
    "standalone": Standalone(**_SIZES, layers=1),
}
LINEAR = {
    "layer_types": ("full_attention", "linear_attention"),
    "linear": Linear(key_heads=1, value_heads=1, key_dim=2, value_dim=2, conv=3),
}
"""What makes the model a hybrid: its second layer is a gated delta net."""


def scenario(
    *rounds: tuple[int, int],
    draft: str = "eagle",
    prompt: tuple[int, ...] = (5, 1, 9),
    model: dict[str, Any] | None = None,
    memory: dict[str, Any] | None = None,
    schedule: dict[str, Any] | None = None,
    request: dict[str, Any] | None = None,
    more: tuple[Request, ...] = (),
    **rest: Any,
) -> Scenario:
    """Return a scenario of one request with these rounds, of which each dict changes a part; `more` are requests."""
    sizes = {"seed": 1, "layers": 2, "heads": 2, "kv_heads": 1, "key_dim": 2, "value_dim": 2, "lanes": 4, "vocab": 16}
    pools = {"page_size": 4, "pages": 32, "request_slots": 4, "max_len": 64}
    return Scenario(
        model=ProbeModel(**{**sizes, **(model or {})}),
        draft=DRAFTS[draft],
        steps=rest.pop("steps", 3),
        memory=Memory(**{**pools, **(memory or {})}),
        graphs=rest.pop("graphs", Graphs()),
        schedule=Schedule(**{"max_batch": 4, "chunk": 16, **(schedule or {})}),
        requests=(asked(*rounds, prompt=prompt, **(request or {})), *more),
        **rest,
    )


def asked(*rounds: tuple[int, int], prompt: tuple[int, ...] = (5, 1, 9), **rest: Any) -> Request:
    """Return a request with these rounds."""
    plans = tuple(RoundPlan(num_drafts=drafts, num_correct=correct) for drafts, correct in rounds)
    return Request(**{"arrival": 0, "prompt": prompt, "budget": 8, "rounds": plans, **rest})


@cache
def run(of: Scenario) -> Trace:
    """Return what the built-in engine reports of a scenario, when all contracts have passed."""
    both = draftproof.run(draftproof.EngineSubject(device="cpu"), of)
    assert draftproof.judge(both).passed
    return both.subject


def show(of: Scenario, channels: str, **where: int) -> None:
    """Print a line for each channel: its values, each behind its step, layer and row where it has them.

    `where` are fields of the key, as `round`. A vector is shown by its first two bytes, a choice by its token.
    """
    trace = run(of)
    for name in channels.split():
        values = dict(trace.of(name, **{"request": 0, **where}))
        labelled = (f"{_label(key)}{_short(values[key])}" for key in sorted(values))
        print(f"{name:<22} {', '.join(labelled) or '-'}")


def _label(key: Key) -> str:
    numbers = [number for number in key[2:] if number >= 0]
    return f"{'/'.join(map(str, numbers))}: " if numbers else ""


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return value[:2].hex()
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], float):
        return str(value[0])
    if isinstance(value, tuple):
        return f"({' '.join(map(str, value))})"
    return str(value)
