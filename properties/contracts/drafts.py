"""What a draft was fed with, computed and proposed, held against the reference value by value.

A subject is held to what its draft has: a trace declares no channel of another kind of draft. `j` a layer of a chain,
`m` the tokens of a match.
"""

from __future__ import annotations

from functools import partial

from draftproof.properties.contracts.base import Contract, Differences, contract, equals, explained
from draftproof.properties.diagnosis.compare import differing, first_divergence
from draftproof.properties.diagnosis.lanes import parts, values_match
from draftproof.properties.evidence import comparison
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import Datum, NgramMatch, TokenIds
from draftproof.properties.values.relations import Different, OtherLayer, OtherRow, Relation, WrongFeature, WrongMatch
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Divergence


def _chained(name: str, channel: str, *, cites: str, minimum: str) -> Contract:
    """Judge an extend channel in layers 1, 2, .. of a chain: what each was given by the layer before it."""

    def differences(evidence: Evidence) -> Differences:
        pair = evidence.pair(channel)
        expected, got = ({key: value for key, value in values.items() if key.layer > 0} for values in pair)
        yield first_divergence(name, channel, expected, got, near=evidence.near(channel), order=evidence.order)

    def is_chain(evidence: Evidence) -> bool:
        return evidence.form.proposes == "chain" and evidence.form.layers > 1

    minimum, needs = f"scenarios {minimum}", (channel,)
    made = contract(name, differences, needs, partial=needs, concerns=is_chain, cites=cites, minimum=minimum)
    return explained(made, _handed_on)


def _handed_on(evidence: Evidence, found: Divergence, key: Key) -> Relation | None:
    """Find out whether a layer of a chain was given what another layer was at the same position, or another request."""
    if key.layer <= 0:
        return None
    expected, got = evidence.reference.channel(found.channel), evidence.subject.channel(found.channel)[key]
    near = evidence.near(found.channel)
    for layer in dict.fromkeys((key.layer - 1, 0)):
        right = expected.get(key._replace(layer=layer))
        if right is not None and not differing({key: right}, {key: got}, near):
            return OtherLayer(layer)
    return _proposed_by_another(evidence, key, got) if found.channel == "extend.ids" else None


def _proposed_by_another(evidence: Evidence, key: Key, got: Datum) -> OtherRow | None:
    """Return the row of the batch whose proposal from the layer before was taken instead, if there is one."""
    at = {(row.request, row.round): (row.step, row.phase) for row in evidence.schedule.rows}
    rows = (
        row for row in evidence.schedule.rows if (row.step, row.phase) == at.get(key[:2]) and row.request != key.request
    )
    for row in rows:
        choice = evidence.reference.choices("extend.proposal").get(Key(row.request, row.round, layer=key.layer - 1))
        if choice is not None and choice[0] == got:
            return OtherRow(request=row.request)
    return None


def _feature(evidence: Evidence, found: Divergence, key: Key) -> Relation | None:
    """Name the feature of a context entry that is wrong, and what it is instead; of other drafts see `_handed_on`."""
    if evidence.form.kind.hidden != "layers":
        return _handed_on(evidence, found, key)
    hidden = evidence.reference.channel("verify.hidden")
    width = next((len(parts(value, 1)) for value in hidden.values()), 0)
    right, got = (parts(trace.channel(found.channel)[key], width) for trace in (evidence.reference, evidence.subject))
    wrong = [place for place, (one, other) in enumerate(zip(right, got, strict=False)) if not values_match(one, other)]
    if len(right) != len(got) or not wrong or not isinstance(found.relation, Different):
        return None
    number, count = wrong[0], len(right)
    source = next((place for place, part in enumerate(right) if values_match(part, got[number])), None)
    if source is not None:
        return WrongFeature(number, count, "feature", source)
    n = evidence.script.requests[key.request].rounds[key.round - 1].context if key.round else key.row + 1
    last = parts(hidden.get(Key(key.request, key.round, row=key.row - n)), width)
    return WrongFeature(number, count, "last" if last and values_match(last[0], got[number]) else "unknown")


def _mismatch(evidence: Evidence, found: Divergence, key: Key) -> WrongMatch | None:
    """Relate one match (m, place) to another."""
    expected, got = (trace.typed(found.channel, NgramMatch)[key] for trace in (evidence.reference, evidence.subject))
    if not expected.length or not got.length:
        return WrongMatch("lost" if expected.length else "invented")
    if expected.length != got.length:
        return WrongMatch("length", got.length - expected.length)
    return WrongMatch("place", got.place - expected.place)


def _verified(evidence: Evidence) -> Differences:
    """Check that a round verifies what is forced, or else what was proposed: by the subject, if it says so."""
    tells = "propose.tokens" in evidence.subject.channels
    proposed = (evidence.subject if tells else evidence.reference).typed("propose.tokens", TokenIds)
    asked: dict[Key, Datum] = {}
    for request, script in enumerate(evidence.script.requests):
        for number, round_ in enumerate((script.first, *script.rounds)):
            key = Key(request, number)
            drafts = proposed.get(key) if round_ is None or round_.forced is None else round_.forced
            if drafts is not None:
                asked[key] = drafts
    got = evidence.subject.channel("round.drafts")
    # What it says of itself is the same on every continuation, but for what is forced where.
    kept = partial(comparison.before_ties, ties=evidence.ties) if tells else evidence.comparable
    expected, got = kept("round.drafts", asked), kept("round.drafts", got)
    yield first_divergence("draft.verified", "round.drafts", expected, got, order=evidence.order)


def _draws(evidence: Evidence) -> bool:
    return evidence.form.kind.draws


_BLOCKS, _PARTIAL = "blocks blocks_cut", "decode_rounds accept_partial"
_MATCHES = "matches no_matches matches_after_partial matches_of_fewer"
_PROPOSED = "rounds_with_drafts rounds_without_drafts unsteered_rounds"
_CHAINED = "layers_chained layers_unchained guesses_replaced"
CONTRACTS = (
    equals("draft.needs", "config.draft", cites="S-HEAD-1"),
    equals("draft.positions", "draft.step.positions", cites="S-EAGLE-3, S-STANDALONE-2", minimum="draft_steps"),
    equals("draft.ids", "draft.step.ids", cites="S-EAGLE-3, S-STANDALONE-2", minimum="draft_steps"),
    equals(
        "draft.hidden",
        "draft.step.hidden_in",
        cites="S-EAGLE-3, S-EAGLE-9",
        minimum="draft_steps second_draft_steps",
    ),
    equals(
        "draft.proposal", "draft.step.proposal", cites="S-EAGLE-3, S-EAGLE-11, S-STANDALONE-2", minimum="draft_steps"
    ),
    equals("block.ids", "draft.block.ids", cites="S-DFLASH-2", minimum=_BLOCKS),
    equals("block.positions", "draft.block.positions", cites="S-DFLASH-2", minimum=_BLOCKS),
    equals("block.visible", "draft.block.visible", cites="S-DFLASH-2", minimum=_BLOCKS),
    equals("block.proposal", "draft.block.proposal", cites="S-DFLASH-2", minimum="blocks all_accepted_then_draft"),
    equals("draft.match", "propose.match", cites="S-NGRAM-1, S-NGRAM-4", minimum=_MATCHES, explain=_mismatch),
    equals(
        "draft.proposed",
        "propose.tokens",
        cites="S-ROUND-2, S-PLAN-5, S-WINDOW-2, S-MROPE-3",
        minimum=f"{_PROPOSED} mrope_rounds mrope_deltas_beside_each_other",
    ),
    equals("draft.weights", "propose.weights", cites="S-SAMPLE-9", minimum="drafts_drawn", concerns=_draws),
    contract(
        "draft.verified",
        _verified,
        ("round.drafts",),
        also=("propose.tokens",),
        cites="S-FOLLOW-2, S-PLAN-4, S-PLAN-5",
        minimum=f"scenarios {_PROPOSED}",
    ),
    _chained("chain.ids", "extend.ids", cites="S-MTP-2, S-MTP-5", minimum="guesses_replaced"),
    _chained("chain.hidden", "extend.hidden_in", cites="S-MTP-3, S-MTP-5", minimum=_CHAINED),
    equals("extend.positions", cites="S-EAGLE-1, S-MTP-1, S-STANDALONE-3", minimum=_PARTIAL),
    equals(
        "extend.ids",
        cites="S-EAGLE-2, S-EAGLE-4, S-STANDALONE-3",
        minimum="decode_rounds chunked_prefills",
        explain=_handed_on,
    ),
    equals(
        "extend.hidden",
        "extend.hidden_in",
        cites="S-EAGLE-2, S-EAGLE-4, S-EAGLE-8, S-HEAD-6, S-DFLASH-3, S-MTP-3",
        minimum=f"{_PARTIAL} states_taken_before_norm",
        explain=_feature,
    ),
    equals(
        "extend.kv",
        cites="S-EAGLE-5, S-EAGLE-10, S-MTP-5, S-HEAD-7, S-HEAD-9, S-DFLASH-3, S-STANDALONE-3, S-KV-3, S-KV-5",
        minimum="decode_rounds all_accepted_then_draft own_embeddings first_embeddings_masked quantized_drafts "
        "kv_formats_differ window_drafts windows_unequal",
    ),
    equals(
        "extend.proposal",
        cites="S-EAGLE-4, S-EAGLE-11, S-MTP-4, S-HEAD-7, S-HEAD-8",
        minimum=f"{_PARTIAL} own_heads own_vocabularies",
    ),
)
