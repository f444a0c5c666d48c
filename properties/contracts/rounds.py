"""What the target computed in every round, held against the reference value by value."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

from draftproof.properties.contracts.base import Differences, contract, equals, listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.tolerances import CLOSE_EXPERTS, is_right_token
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.relations import ChoiceOf, Missing, NotGreedy, Resized, Surplus, off_by
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Divergence


def _lossless(evidence: Evidence) -> Differences:
    """Check that the emitted tokens are those of plain greedy decoding, however the rounds divide them.

    The tokens of a sampled request depend on its rounds: they are not judged if the schedule decides the rounds and the
    subject does not report it.
    """
    got = evidence.subject.typed("accept.emitted", TokenIds)
    are_rounds_known = not evidence.scenario.dynamic or "round.rows" in evidence.subject.channels
    for request, script in enumerate(evidence.script.requests):
        if evidence.scenario.requests[request].sampling is not None and not are_rounds_known:
            continue
        text = evidence.subject.texts.get(request, ())
        first = _first_wrong(evidence, request, text)
        if first is not None:
            keys = [key for key in got if key.request == request for _ in got[key]]
            key = keys[first] if first < len(keys) else Key(request, len(script.rounds))
            end = _end(evidence, request, text)
            is_end = first == min(len(text), end)
            relation = Resized(len(text) - end) if is_end else _not_greedy(evidence, request, first)
            place = Mismatch("accept.emitted", key, script.tokens, text, relation)
            yield place.divergence("output.lossless")
            return


def _not_greedy(evidence: Evidence, request: int, number: int) -> NotGreedy:
    """Return the relation of a wrong token of a text; of a real model's by how much it is worse than the best."""
    gaps = evidence.reference.token_gaps.get(request, ())
    if number >= len(gaps):
        return NotGreedy()
    below = gaps[number].below
    return NotGreedy(number, None if isinf(below) else below)


def _first_wrong(evidence: Evidence, request: int, text: tuple[int, ...]) -> int | None:
    """Return which token of a text is the first that is wrong, lacking or too much; None if it is right (S-TEXT).

    A real model's text is judged by its own continuation: any token that rounding cannot tell from the best is right.
    """
    script = evidence.script.requests[request]
    if text == script.tokens or _is_tied_by_experts(evidence, request):
        return None
    gaps, end = evidence.reference.token_gaps.get(request), _end(evidence, request, text)
    if gaps is None:
        pairs = enumerate(zip(text, script.tokens, strict=False))
        return next((i for i, (is_, must) in pairs if is_ != must), min(len(text), end))
    wrong = [i for i, gap in enumerate(gaps) if not is_right_token(evidence.scenario, gap)]
    if len(gaps) < len(text):
        wrong.append(len(gaps))
    if len(text) != end:
        wrong.append(min(len(text), end))
    return min(wrong, default=None)


def _end(evidence: Evidence, request: int, text: tuple[int, ...]) -> int:
    """Return how many tokens a text must have: a real model's by its own stop tokens, any other as decoding has."""
    script = evidence.script.requests[request]
    if request not in evidence.reference.token_gaps:
        return len(script.tokens)
    of, most = evidence.scenario.requests[request], evidence.scenario.memory.max_len
    end = min(of.budget, most - len(of.prompt))
    return next((i + 1 for i, token in enumerate(text[:end]) if token in script.stop), end)


def _is_tied_by_experts(evidence: Evidence, request: int) -> bool:
    """Return whether rounding may select other experts somewhere, in which case the text cannot be predicted."""
    return any(at[0] == request and gap < CLOSE_EXPERTS for at, gap in evidence.reference.gaps.items())


def _miscounted(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield numbers of accepted drafts that do not go with the tokens that the subject says the round emitted.

    The end of a request may cut what a round emits, and never what acceptance found.
    """
    channel = "accept.correct_len"
    emitted, told = evidence.subject.typed("accept.emitted", TokenIds), evidence.subject.typed(channel, int)
    last = {key.request: key.round for key in sorted(emitted)}
    for key in sorted(emitted.keys() | told.keys()):
        got, implied = told.get(key), len(emitted.get(key, ())) - 1
        expected = f"{implied}, as the round emits {implied + 1}"
        if key not in emitted:
            yield Mismatch(channel, key, None, got, Surplus())
        elif got is None:
            if key.round:  # a prompt's round verifies no drafts
                yield Mismatch(channel, key, expected, None, Missing())
        elif got < implied or (got > implied and key.round != last[key.request]):
            yield Mismatch(channel, key, expected, got, off_by(implied, got))


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


def _has_logprobs(evidence: Evidence) -> bool:
    return evidence.scenario.most_logprobs is not None


_PARTIAL = "decode_rounds accept_partial"
CONTRACTS = (
    equals("verify.positions", cites="S-ROUND-3, S-TREE-7", minimum=_PARTIAL),
    equals("verify.ids", cites="S-ROUND-3", minimum="decode_rounds"),
    equals(
        "verify.hidden",
        cites="S-ROUND-3, S-WINDOW-1, S-MROPE-3",
        minimum=f"{_PARTIAL} window_rounds windows_left window_prompts mrope_rounds mrope_images_cut",
    ),
    equals(
        "verify.choice",
        cites="S-ROUND-3, S-SAMPLE-2, S-SAMPLE-10, S-TREE-11, S-PENALTY-2, S-PENALTY-3, S-PENALTY-4, S-GRAMMAR-4",
        minimum="decode_rounds sampled_accepted sampled_residuals sampled_after_all greedy_beside_sampled "
        "half_sampled_batches sampled_top_k_1 "
        "drawn_accepted drawn_residuals drawn_after_all "
        "penalty_changed_choice penalty_by_draft_in_window bias_changed_choice repetition_changed_choice "
        "frequency_changed_choice presence_changed_choice",
    ),
    equals(
        "accept.greedy",
        *("accept.correct_len", "accept.index", "accept.bonus", "accept.emitted"),
        cites="S-ROUND-4, S-LIMIT-7, S-LIMIT-8, S-LIMIT-19, S-TREE-8",
        minimum="accept_none accept_partial accept_all rounds_without_drafts",
        explain=_bonus,
    ),
    equals(
        "accept.emitted",
        reads=("round.drafts",),
        cites="S-ROUND-4, S-LIMIT-8, S-FOLLOW-1",
        minimum="rounds_with_drafts",
    ),
    equals(
        "accept.logprobs",
        cites="S-SAMPLE-12, S-SAMPLE-15",
        minimum="logprobs_of_several logprobs_behind_rejection logprobs_of_sampled",
        concerns=_has_logprobs,
    ),
    listed(
        "accept.counted",
        _miscounted,
        ("accept.correct_len",),
        reads=("accept.emitted",),
        by_round=False,
        cites="S-ROUND-4, S-LIMIT-12",
        minimum="scenarios decode_rounds",
    ),
    equals(
        "commit.kv",
        cites="S-ROUND-5, S-TREE-9, S-KV-1, S-KV-4, S-KV-6",
        minimum=f"{_PARTIAL} page_crossings quantized_targets",
    ),
    equals("commit.length", cites="S-ROUND-5, S-LIMIT-9, S-LIMIT-19", minimum=_PARTIAL),
    contract(
        "output.lossless",
        _lossless,
        ("accept.emitted",),
        by_round=False,
        cites="S-ROUND-7, S-SAMPLE-8, S-PLAN-6, S-TEXT-2, S-TEXT-3, S-TRACE-12",
        minimum="scenarios settled_tokens accept_partial accept_all sampled_dynamic_rounds sampled_stops",
    ),
)
