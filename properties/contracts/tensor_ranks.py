"""Tensor-parallel ranks: the collectives of every forward, and the same decisions on all of them (S-TP)."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.contracts.forwards import TARGET_MODEL, ModelForward, run_in
from draftproof.properties.contracts.ranks import GATHER, SUM, by_step, differing, parted
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.lockstep import Lockstep
from draftproof.properties.evidence.rank_work import rank_work
from draftproof.properties.values.drafts import Eagle3, ProbeDraft
from draftproof.properties.values.observed import Collective
from draftproof.properties.values.relations import Different, Missing, Relation, Surplus
from draftproof.properties.values.scenario import LayerType, ProbeModel

FLOAT32 = 2
DECISIONS = (
    "round.rows",
    "round.table",
    "round.state",
    "round.attempt",
    "round.cached",
    "adaptive_steps.steps",
    "propose.tokens",
    "propose.parents",
    "round.drafts",
    "accept.correct_len",
    "accept.index",
    "accept.bonus",
    "accept.emitted",
    "accept.returned",
    "commit.length",
    "commit.step_index",
    "graph.replay",
    "pool.owners",
    "pool.states",
    "pool.cached",
    "pool.checkpoints",
)
"""What every rank decides by itself, and all have to decide alike."""


def _collectives(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that all ranks issue the same collectives, and, except for captures, those that the forwards need."""
    assert evidence.beside is not None
    reported = evidence.subject.typed("rank.collectives", Collective)
    of_ranks = (one.typed("rank.collectives", Collective) for one in evidence.beside.subjects)
    if apart := list(parted(evidence, of_ranks)):
        yield from apart
        return
    alone, issued = Lockstep((rank_work(evidence),)), by_step(reported)
    for step in range(alone.last_step + 1):
        yield from differing(step, 0, list(expected(evidence, alone, step)), issued.get(step, []))
    for key, value in reported.items():
        if not 0 <= key.round <= alone.last_step:
            yield Mismatch("rank.collectives", key, None, value, Surplus())


def expected(evidence: Evidence, alone: Lockstep, step: int) -> Iterator[Collective]:
    """Yield what every rank issues in a step, captures left out (S-TP-4)."""
    for one in run_in(evidence, alone, step):
        if isinstance(one, ModelForward):
            yield from _of_forward(evidence, one)


def _of_forward(evidence: Evidence, one: ModelForward) -> Iterator[Collective]:
    scenario = evidence.scenario
    model, draft, ranks = scenario.model, scenario.draft, scenario.ranks
    assert isinstance(model, ProbeModel)
    types: tuple[LayerType, ...] = ("full_attention",)
    if one.model == TARGET_MODEL:
        embedded, lanes, vocab, types = model.lanes, model.lanes, model.vocab, model.types
    elif ranks.draft_tensor > 1 and isinstance(draft, ProbeDraft):
        embedded, lanes, vocab = _embedded(draft, model), draft.lanes, getattr(draft, "head_vocab", 0) or model.vocab
        # Layers of a chain have forwards of their own.
        types *= 1 if evidence.form.proposes == "chain" else evidence.form.layers
    else:
        return
    yield Collective(SUM, one.rows, embedded)
    for kind in types:
        # Beside the lanes of the layer, heads hand on what the carry is made of.
        yield Collective(SUM, one.rows, lanes + int(kind != "linear_attention"))
        yield Collective(SUM, one.rows, lanes)
    for rows in one.logits:
        yield Collective(GATHER, rows, -(-vocab // ranks.tensor), FLOAT32)


def _embedded(draft: ProbeDraft, model: ProbeModel) -> int:
    """Return how many lanes the draft's embedding has: its own, or the target's."""
    own = draft.own_embedding if isinstance(draft, Eagle3) else not hasattr(draft, "own_embedding")
    return draft.lanes if own else model.lanes


def _decisions(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that what a rank decides is what the first rank does."""
    assert evidence.beside is not None
    first = evidence.beside.subjects[0]
    for channel in DECISIONS:
        expected, got = first.channel(channel), evidence.subject.channel(channel)
        for key in expected.keys() | got.keys():
            if expected.get(key) != got.get(key):
                relation: Relation = Missing() if key not in got else Surplus() if key not in expected else Different()
                told = f"{expected.get(key, 'nothing')}, as rank 0"
                yield Mismatch(channel, key, told, str(got.get(key, "nothing")), relation)


def _of_tensor_ranks(evidence: Evidence) -> bool:
    return evidence.beside is not None


CONTRACTS = (
    listed(
        "tensor.collectives",
        _collectives,
        ("rank.collectives",),
        reads=("round.rows",),
        also=("round.cached",),
        cites="S-TP-4, S-RANK-5",
        minimum="scenarios tensor_ranks_run tensor_drafts_cut tensor_drafts_whole tensor_padded_launches",
        concerns=_of_tensor_ranks,
    ),
    listed(
        "tensor.decisions",
        _decisions,
        ("round.rows", "round.table", "accept.emitted", "commit.length", "graph.replay", "pool.owners"),
        reads=("rank.collectives",),
        also=DECISIONS,
        partial=DECISIONS,
        cites="S-TP-3",
        minimum="scenarios tensor_ranks_run accept_partial",
        concerns=_of_tensor_ranks,
    ),
)
