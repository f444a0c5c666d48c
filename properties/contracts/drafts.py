"""What a draft was fed with, computed and proposed, held against the reference value by value.

A subject is held to what its draft has: a trace declares no channel of another kind of draft. `j` a layer of a chain,
`m` the tokens of a match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from draftproof.properties.compare import apart, first_divergence
from draftproof.properties.contracts.base import Contract, equals, nearness
from draftproof.properties.contracts.evidence import Evidence
from draftproof.properties.values.trace import Datum, Key, integers
from draftproof.properties.values.verdict import Divergence

Values = Mapping[Key, Datum]


def _chained(name: str, channel: str, **minimum: int) -> Contract:
    """A channel of the extend in layers 1, 2, .. of a chain: what each was given by the layer before it."""

    def check(evidence: Evidence) -> Iterator[Divergence]:
        whole, subject = evidence.pair(channel)
        expected, got = _later(whole), _later(subject)
        found = first_divergence(name, channel, expected, got, near=nearness(evidence, channel))
        if found:
            key = Key(found.request, found.round, layer=found.layer, row=found.row)
            relation = _of_layer_before(evidence, channel, key, whole, got)
            yield msgspec.structs.replace(found, relation=relation) if relation else found

    return Contract(
        name=name,
        needs=frozenset({channel}),
        partial=frozenset({channel}),
        minimum={"scenarios": 1, **minimum},
        check=check,
        concerns=_takes_turns,
    )


def _takes_turns(evidence: Evidence) -> bool:
    return evidence.form.chained and evidence.form.layers > 1


def _later(values: Values) -> dict[Key, Datum]:
    return {key: value for key, value in values.items() if key.layer > 0}


def _of_layer_before(evidence: Evidence, channel: str, key: Key, expected: Values, got: Values) -> str:
    """Whether a wrong value is what the layer before, or layer 0, was given at the same position."""
    if key not in got or key not in expected:
        return ""
    for layer in dict.fromkeys((key.layer - 1, 0)):
        other = key._replace(layer=layer)
        pair = {key: expected[other]} if other in expected else {}
        if pair and not first_divergence("", channel, pair, {key: got[key]}, near=nearness(evidence, channel)):
            return f"value of layer {layer}"
    return ""


def _match(evidence: Evidence) -> Iterator[Divergence]:
    """(m, place) of every decode round; a wrong one says what is wrong with it."""
    expected, got = evidence.pair("propose.match")
    found = first_divergence("draft.match", "propose.match", expected, got)
    if found:
        key = Key(found.request, found.round)
        relation = _mismatch(integers(expected.get(key)), integers(got.get(key)))
        yield msgspec.structs.replace(found, relation=relation or found.relation)


def _mismatch(expected: tuple[int, ...], got: tuple[int, ...]) -> str:
    if len(expected) != 2 or len(got) != 2:
        return ""
    if not expected[0] or not got[0]:
        return "no match found" if expected[0] else "a match where there is none"
    if expected[0] != got[0]:
        return f"a match of {abs(got[0] - expected[0])} token(s) {'more' if got[0] > expected[0] else 'fewer'}"
    return f"place {apart(expected[1], got[1])}"


CONTRACTS = (
    equals("draft.needs", "config.draft"),
    equals("draft.positions", "draft.step.positions", draft_steps=1),
    equals("draft.ids", "draft.step.ids", draft_steps=1),
    equals("draft.hidden", "draft.step.hidden_in", draft_steps=1, second_draft_steps=1),
    equals("draft.proposal", "draft.step.proposal", draft_steps=1),
    equals("block.ids", "draft.block.ids", blocks=1, blocks_cut=1),
    equals("block.positions", "draft.block.positions", blocks=1, blocks_cut=1),
    equals("block.visible", "draft.block.visible", blocks=1, blocks_cut=1),
    equals("block.proposal", "draft.block.proposal", blocks=1, all_accepted_then_draft=1),
    Contract(
        name="draft.match",
        needs=frozenset({"propose.match"}),
        minimum={"matches": 1, "no_matches": 1, "matches_after_partial": 1, "matches_of_fewer": 1},
        check=_match,
    ),
    equals("draft.proposed", "propose.tokens", rounds_with_drafts=1, rounds_without_drafts=1, unsteered_rounds=1),
    _chained("chain.ids", "extend.ids", guesses_replaced=1),
    _chained("chain.hidden", "extend.hidden_in", layers_chained=1, layers_unchained=1, guesses_replaced=1),
    equals("extend.positions", "extend.positions", decode_rounds=1, accept_partial=1),
    equals("extend.ids", "extend.ids", decode_rounds=1, chunked_prefills=1),
    equals("extend.hidden", "extend.hidden_in", decode_rounds=1, accept_partial=1),
    equals("extend.kv", "extend.kv", decode_rounds=1, all_accepted_then_draft=1),
    equals("extend.proposal", "extend.proposal", decode_rounds=1, accept_partial=1),
)
