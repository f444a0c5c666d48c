"""What every round computed, held against the reference value by value."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.compare import Place, first_divergence
from draftproof.properties.contracts.base import Contract, equals
from draftproof.properties.contracts.evidence import Evidence
from draftproof.properties.values.trace import Key, integers
from draftproof.properties.values.verdict import Divergence


def _lossless(evidence: Evidence) -> Iterator[Divergence]:
    """Round by round what the reference emits, and over all rounds plain greedy decoding."""
    expected, got = evidence.pair("accept.emitted")
    found = first_divergence("lossless", "accept.emitted", expected, got)
    if found:
        yield found
        return
    for request, script in enumerate(evidence.script.requests):
        if request in evidence.ties:
            continue
        emitted = tuple(token for key in sorted(got) if key.request == request for token in integers(got[key]))
        if emitted != script.tokens:
            key = Key(request, len(script.rounds))
            place = Place("accept.emitted", key, script.tokens, emitted, "not plain greedy decoding")
            yield place.divergence("lossless")
            return


CONTRACTS = (
    equals("draft.positions", "draft.step.positions", draft_steps=1),
    equals("draft.ids", "draft.step.ids", draft_steps=1),
    equals("draft.hidden", "draft.step.hidden_in", draft_steps=1, second_draft_steps=1),
    equals("draft.proposal", "draft.step.proposal", draft_steps=1),
    equals("verify.positions", "verify.positions", decode_rounds=1, accept_partial=1),
    equals("verify.ids", "verify.ids", decode_rounds=1),
    equals("verify.hidden", "verify.hidden", decode_rounds=1, accept_partial=1),
    equals("verify.choice", "verify.choice", decode_rounds=1),
    equals(
        "accept",
        "accept.correct_len",
        "accept.index",
        "accept.bonus",
        accept_none=1,
        accept_partial=1,
        accept_all=1,
        rounds_without_drafts=1,
    ),
    equals("commit.kv", "commit.kv", decode_rounds=1, accept_partial=1, page_crossings=1),
    equals("lengths", "commit.length", decode_rounds=1, accept_partial=1),
    equals("extend.positions", "extend.positions", decode_rounds=1, accept_partial=1),
    equals("extend.ids", "extend.ids", decode_rounds=1, chunked_prefills=1),
    equals("extend.hidden", "extend.hidden_in", decode_rounds=1, accept_partial=1),
    equals("extend.kv", "extend.kv", decode_rounds=1, all_accepted_then_draft=1),
    equals("extend.proposal", "extend.proposal", decode_rounds=1, accept_partial=1),
    Contract(
        name="lossless",
        needs=frozenset({"accept.emitted"}),
        minimum={"scenarios": 1, "tokens_emitted": 1, "accept_partial": 1, "accept_all": 1},
        check=_lossless,
    ),
)
