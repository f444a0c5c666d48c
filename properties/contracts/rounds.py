"""What the target computed in every round, held against the reference value by value."""

from __future__ import annotations

from draftproof.properties.contracts.base import Differences, contract, equals
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.relations import ChoiceOf, NotGreedy
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Divergence


def _lossless(evidence: Evidence) -> Differences:
    """Check that all emitted tokens are those of plain greedy decoding; how rounds cut them is no part of it."""
    got = evidence.subject.typed("accept.emitted", TokenIds)
    for request, script in enumerate(evidence.script.requests):
        if request in evidence.ties:
            continue
        keys = sorted(key for key in got if key.request == request)
        emitted = [(token, key) for key in keys for token in got[key]]
        text = tuple(token for token, _ in emitted)
        if text != script.tokens:
            pairs = enumerate(zip(text, script.tokens, strict=False))
            first = next((i for i, (is_, must) in pairs if is_ != must), min(len(text), len(script.tokens)))
            key = emitted[first][1] if first < len(emitted) else Key(request, len(script.rounds))
            place = Mismatch("accept.emitted", key, script.tokens, text, NotGreedy())
            yield place.divergence("output.lossless")
            return


def _bonus(evidence: Evidence, found: Divergence, key: Key) -> ChoiceOf | None:
    """Return the nearest verify row that a wrong bonus is the choice after."""
    right = evidence.reference.typed("accept.correct_len", int).get(key)
    if found.channel != "accept.bonus" or right is None:
        return None
    bonus = evidence.subject.channel(found.channel)[key]
    choices = evidence.reference.choices("verify.choice").items()
    rows = [at.row for at, (token, _) in choices if at[:2] == key[:2] and token == bonus]
    nearest = min(rows, key=lambda row: abs(row - right), default=None)
    return None if nearest is None else ChoiceOf(nearest, nearest - right)


_PARTIAL = "decode_rounds accept_partial"
CONTRACTS = (
    equals("verify.positions", cites="S-ROUND-3", minimum=_PARTIAL),
    equals("verify.ids", cites="S-ROUND-3", minimum="decode_rounds"),
    equals("verify.hidden", cites="S-ROUND-3", minimum=_PARTIAL),
    equals("verify.choice", cites="S-ROUND-3", minimum="decode_rounds"),
    equals(
        "accept.greedy",
        *("accept.correct_len", "accept.index", "accept.bonus", "accept.emitted"),
        cites="S-ROUND-4, S-LIMIT-7, S-LIMIT-8",
        minimum="accept_none accept_partial accept_all rounds_without_drafts",
        explain=_bonus,
    ),
    equals("commit.kv", cites="S-ROUND-5", minimum=f"{_PARTIAL} page_crossings"),
    equals("commit.length", cites="S-ROUND-5, S-LIMIT-9", minimum=_PARTIAL),
    contract(
        "output.lossless",
        _lossless,
        ("accept.emitted",),
        by_round=False,
        cites="S-ROUND-7",
        minimum="scenarios tokens_emitted accept_partial accept_all",
    ),
)
