"""What comes of a check of forced acceptance: what was promised, and what an engine did (S-AUDIT-17)."""

from __future__ import annotations

from typing import Literal, get_args

from draftproof.properties.formats.audit import Rate
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Outcome

ForcedBy = Literal["vllm", "sglang", "sglang-multinomial", "trtllm", "atom", "llama"]
FORCED_BY: tuple[ForcedBy, ...] = get_args(ForcedBy)
"""The ways of engines to force acceptance; harness/audit/forced.py has what each promises."""
ForcedKind = Literal["exact", "chance"]


class ForcedPosition(Value, frozen=True, kw_only=True):
    """A position of the draft: of `tried` rounds that came so far, `accepted` accepted it, and `promised` is the share.

    A promise of all or none is `exact`; any other is one of chance, and `p` is how probable such a count is under it.
    """

    position: int
    kind: ForcedKind
    promised: Rate
    tried: int
    accepted: int
    p: Rate
    holds: bool


class ForcedReport(Value, frozen=True, kw_only=True):
    """The result: `promised` and `observed` are acceptance lengths, with the target's token.

    `mode` is the engine's way to force them, `rates` the share of rounds that accept at least 1, 2, .. drafts under it;
    `false_alarms` is how often an engine that keeps its promise fails, `noticeable` the least difference of the mean
    that is noticed in nine of ten cases, and `fits` what else was promised for all that is seen.
    """

    verdict: Outcome
    says: str
    mode: ForcedBy
    promised: float
    observed: float
    rounds: int
    rates: tuple[Rate, ...]
    false_alarms: float
    noticeable: float
    positions: tuple[ForcedPosition, ...]
    fits: tuple[str, ...] = ()
