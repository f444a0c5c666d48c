"""Drafts: what each algorithm is made of, and what a subject that runs it reports.

A new draft is a line of `KINDS`, with a specification of its own unless one that is here will do; the engine finds it
in engine/drafts/, the reference in reference/drafts/, both under its name.
Sources: EAGLE, Li et al. (2024); chained MTP, sgl-project/sglang#22041 and DeepSeek-V3 (2024); DFlash, sgl-project/
sglang#25029; n-gram, Saxena, "Prompt Lookup Decoding" (2023); standalone, Leviathan et al. (2023).
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from draftproof.properties.values.base import Value

Small = Annotated[int, Meta(ge=1, le=64)]
Lanes = Annotated[int, Meta(ge=2, le=64)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]
Algorithm = Literal["eagle", "mtp", "dflash", "ngram", "standalone"]
ALGORITHMS: tuple[Algorithm, ...] = Algorithm.__args__  # type: ignore[attr-defined]


class Eagle(Value, frozen=True, kw_only=True, tag="eagle", tag_field="kind"):
    """An EAGLE head of a probe: one layer of its own sizes, fed with (token, hidden)."""

    seed: Seed
    heads: Small
    kv_heads: Small
    key_dim: Small
    value_dim: Small
    lanes: Lanes


class Mtp(Value, frozen=True, kw_only=True, tag="mtp", tag_field="kind"):
    """Chained multi-token prediction for a probe: `layers` with weights and entries of their own, one a proposal.

    With `chain` a layer takes the output of the one before it, as that `handed` it on; without it every layer takes the
    target's hidden states.
    """

    seed: Seed
    layers: Annotated[int, Meta(ge=1, le=16)]
    heads: Small
    kv_heads: Small
    key_dim: Small
    value_dim: Small
    lanes: Lanes
    chain: bool = True
    handed: Literal["after_norm", "before_norm"] = "after_norm"


class DFlash(Value, frozen=True, kw_only=True, tag="dflash", tag_field="kind"):
    """A block of masked tokens proposed in one pass over features of the context, which are the outputs of the target's
    layers `features`, side by side in that order."""

    seed: Seed
    layers: Annotated[int, Meta(ge=1, le=16)]
    heads: Small
    kv_heads: Small
    key_dim: Small
    value_dim: Small
    lanes: Lanes
    features: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)]


class Standalone(Value, frozen=True, kw_only=True, tag="standalone", tag_field="kind"):
    """A smaller probe with entries of its own, which never sees a hidden state of the target."""

    seed: Seed
    layers: Annotated[int, Meta(ge=1, le=16)]
    heads: Small
    kv_heads: Small
    key_dim: Small
    value_dim: Small
    lanes: Lanes


class Ngram(Value, frozen=True, kw_only=True, tag="ngram", tag_field="kind"):
    """What followed the longest suffix of `max_n` down to `min_n` tokens that has occurred before."""

    max_n: Annotated[int, Meta(ge=1, le=16)]
    min_n: Annotated[int, Meta(ge=1, le=16)] = 1


class CheckpointDraft(Value, frozen=True, kw_only=True, tag="checkpoint", tag_field="kind"):
    """A draft of a real architecture: a directory, or "" for an EAGLE head made from `seed`.

    `built_in`: the MTP layers that the target's own checkpoint brings; as "eagle" the first of them, run again and
    again, as "mtp" all of them, chained.
    """

    algorithm: Literal["eagle", "mtp", "dflash", "standalone"] = "eagle"
    path: str = ""
    seed: Seed = 0
    built_in: bool = False


ProbeDraft = Eagle | Mtp | DFlash | Standalone
Draft = Eagle | Mtp | DFlash | Standalone | Ngram | CheckpointDraft

_ENTRIES = frozenset({"extend.positions", "extend.slots", "extend.kv"})
_STEPS = frozenset({f"draft.step.{name}" for name in ("ids", "positions", "slots", "proposal")})
_BLOCK = frozenset({f"draft.block.{name}" for name in ("ids", "positions", "slots", "visible", "proposal")})


class DraftKind(NamedTuple):
    """An algorithm: `tapped` are the channels of its own that it reports, `hidden` what it takes of the target's states
    (none, those after the final norm, or the outputs of chosen layers), and `minimum` the counts (counts.py) of its own
    scenarios without which a check of it proves nothing, beside those that every draft needs."""

    name: Algorithm
    hidden: Literal["none", "last", "layers"]
    tapped: frozenset[str]
    minimum: tuple[str, ...] = ()


KINDS: tuple[DraftKind, ...] = (
    DraftKind(
        "eagle",
        "last",
        _STEPS | _ENTRIES | {"draft.step.hidden_in", "extend.ids", "extend.hidden_in", "extend.proposal"},
        ("second_draft_steps", "all_accepted_then_draft", "zero_tails"),
    ),
    DraftKind(
        "mtp",
        "last",
        _ENTRIES | {"extend.ids", "extend.hidden_in", "extend.proposal"},
        ("layers_chained", "layers_unchained", "guesses_replaced", "chains_of_one", "zero_tails"),
    ),
    DraftKind(
        "dflash",
        "layers",
        _BLOCK | _ENTRIES | {"extend.hidden_in"},
        ("blocks", "blocks_cut", "all_accepted_then_draft"),
    ),
    DraftKind(
        "ngram",
        "none",
        frozenset({"propose.match"}),
        ("matches", "no_matches", "matches_after_partial", "matches_of_fewer", "unfound_beside_found"),
    ),
    DraftKind(
        "standalone",
        "none",
        _STEPS | _ENTRIES | {"extend.ids"},
        ("second_draft_steps", "all_accepted_then_draft"),
    ),
)
BY_NAME: dict[str, DraftKind] = {kind.name: kind for kind in KINDS}

DraftSet = Algorithm | Literal["all"]
DRAFT_SETS: tuple[DraftSet, ...] = (*ALGORITHMS, "all")


def drafts_of(name: DraftSet) -> tuple[Algorithm, ...]:
    """Return the drafts that a name stands for: itself, or all."""
    return ALGORITHMS if name == "all" else (name,)


def algorithm(draft: Draft) -> Algorithm:
    """The name of a draft's algorithm."""
    if isinstance(draft, CheckpointDraft):
        return draft.algorithm
    return draft.__struct_config__.tag  # type: ignore[return-value]


def kind_of(draft: Draft) -> DraftKind:
    """The row of `KINDS` that a draft belongs to."""
    return BY_NAME[algorithm(draft)]
