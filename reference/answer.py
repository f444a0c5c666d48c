"""What would have been right for what a subject did: the reference's answer to a run (S-FOLLOW).

The rounds have the drafts that the subject verified; all results are the reference's own. All that it knows of the
subject is a value `ObservedRun`, read from the trace once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from draftproof.properties.evidence.observed_run import ObservedBatches, ObservedRun, Place
from draftproof.properties.evidence.tolerances import right_part, slack_of_entries
from draftproof.properties.values.fp8 import keeps_entries
from draftproof.properties.values.limits import NO_LIMITS, Limits, num_accepted
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.variants import RESHAPED
from draftproof.reference.adaptive_steps import observations
from draftproof.reference.logprobs import logprob_gaps
from draftproof.reference.memo import Memo
from draftproof.reference.prefix_cache import without_served
from draftproof.reference.solve import UNCHANGED, resolve
from draftproof.reference.solved import Solved, traced
from draftproof.reference.stored import Following
from draftproof.reference.text import TokenGaps, token_gaps

Texts = Mapping[int, TokenIds]
"""The text of requests, by their number."""


@dataclass(frozen=True)
class RightRun:
    """The run that would have been right: its `trace`, with the gaps of what the subject emitted and returned.

    `followed` is the scenario solved for the rounds that the subject ran, `gaps` are the gaps of its texts.
    """

    followed: Solved
    gaps: TokenGaps
    trace: Trace

    @property
    def script(self) -> Script:
        """The script, with the rounds as they ran."""
        return self.followed.script


def answer(known: Solved, observed: ObservedRun, limits: Limits = NO_LIMITS) -> RightRun:
    """Return what would have been right for what a subject did in the run of a scenario.

    `limits` say what its last round commits, and whether it chooses the number of its drafts.
    """
    gaps = _gaps(known, observed)
    followed = follow(known, observed, limits, _right_texts(known.scenario, observed, gaps))
    return _right_run(followed, followed.trace, gaps, observed)


def answer_variant(
    known: Solved, right: RightRun, base: ObservedRun, observed: ObservedRun, limits: Limits = NO_LIMITS
) -> RightRun:
    """Return the right run for the scenario's variant; `right` is the answer to the `base` run.

    Where both runs verified and emitted the same, both have one answer. Otherwise the variant's rounds are followed in
    the batches of the base run, unless its text goes another right way, and so has batches of its own (S-FOLLOW-9).
    """
    followed, gaps = right.followed, right.gaps
    is_forked = observed.texts != base.texts
    is_same = (observed.drafts, observed.parents) == (base.drafts, base.parents)
    if is_forked or not is_same or _stores_otherwise(known.scenario):
        gaps = _gaps(known, observed) if is_forked else gaps
        texts = _right_texts(known.scenario, observed, gaps)
        own = observed if is_forked and texts else observed.batched_as(base)
        followed = follow(known, own, limits, texts)
    return _right_run(followed, followed.varied or followed.trace, gaps, observed)


def follow(known: Solved, observed: ObservedRun, limits: Limits = NO_LIMITS, texts: Texts = UNCHANGED) -> Solved:
    """Solve a scenario for the drafts that a subject verified, and their numbers where it chose these (S-FOLLOW-1).

    `texts` are those to follow behind a tie, by request (S-FOLLOW-8).
    """
    scenario, following = known.scenario, _following(known.scenario, observed)
    memo = Memo(following=following) if following else known.memo or Memo()
    if following or texts or not _is_as_solved(known, observed):
        done = _resolved(known, observed, limits, texts, memo)
    else:
        done = known if limits.finish == NO_LIMITS.finish else traced(scenario, known.script, memo, limits)
    if not (scenario.schedule.prefix_cache or limits.own_prefix_cache):
        return done
    trace, varied = (without_served(one, observed.cached) for one in (done.trace, done.varied))
    return replace(done, trace=trace, varied=varied)


def _is_as_solved(known: Solved, observed: ObservedRun) -> bool:
    """Return whether a subject ran the rounds that were expected of it, and verified in them what was."""
    if known.trace is None or known.scenario.dynamic or observed.batches.resumed or observed.batches.ended:
        return False
    return _verified(known.trace, "round.drafts", observed.drafts) and _verified(
        known.trace, "round.parents", observed.parents
    )


def _verified(trace: Trace, channel: str, seen: Mapping[Place, TokenIds]) -> bool:
    rows = trace.typed(channel, tuple)
    return all(rows.get(Key(*place), ()) == of_round for place, of_round in seen.items())


def _resolved(known: Solved, observed: ObservedRun, limits: Limits, texts: Texts, memo: Memo) -> Solved:
    """Return the scenario with the rounds that a subject ran, and the steps in force in its batches."""
    scenario, batches = known.scenario, observed.batches
    script = resolve(
        scenario,
        known.script,
        batches.counts,
        memo,
        observed.drafts,
        batches.resumed,
        chooses=limits.chooses_drafts,
        followed=texts,
        parents=observed.parents,
        ended=batches.ended,
    )
    done, control = traced(scenario, script, memo, limits), tuple(_control(scenario, batches, script, limits))
    return replace(done, trace=_with(done.trace, control), varied=_with(done.varied, control))


def _control(scenario: Scenario, batches: ObservedBatches, script: Script, limits: Limits) -> Iterator[Observation]:
    correct = {
        (request, number): num_accepted(round_.correct_len, len(round_.emitted), limits)
        for request, of_request in enumerate(script.requests)
        for number, round_ in enumerate(of_request.rounds, start=1)
    }
    return observations(scenario, batches.rows, correct, batches.waited)


def _with(trace: Trace | None, more: tuple[Observation, ...]) -> Trace | None:
    if trace is None:
        return None
    channels = trace.channels | {observation.channel for observation in more}
    return replace(trace, channels=channels, observations=(*trace.observations, *more))


def _gaps(known: Solved, observed: ObservedRun) -> TokenGaps:
    """Return how far each token of a text that is not the script's is from the best (S-TEXT)."""
    following = _following(known.scenario, observed)
    return token_gaps(known.scenario, known.script, observed.texts, observed.in_place, following)


def _right_texts(scenario: Scenario, observed: ObservedRun, gaps: TokenGaps) -> Texts:
    """Return the texts that go another right way, each as far as it is right (S-FOLLOW-8)."""
    parts = {at: right_part(scenario, observed.texts[at], of_text) for at, of_text in gaps.items()}
    return {at: part for at, part in parts.items() if any(gap.below > 0 for gap in gaps[at][: len(part)])}


def _right_run(followed: Solved, trace: Trace | None, gaps: TokenGaps, observed: ObservedRun) -> RightRun:
    """Return the run of a trace, with the gaps of the text that a subject emitted and of what it told of its tokens."""
    assert trace is not None
    scenario = followed.scenario
    told = logprob_gaps(scenario, trace, observed.logprobs, _following(scenario, observed))
    whole = replace(trace, token_gaps=gaps, logprob_gaps=told) if gaps or told else trace
    return RightRun(followed, gaps, whole)


def _stores_otherwise(scenario: Scenario) -> bool:
    """Return whether the variant run may round an entry otherwise, so that each run is followed by itself (S-KV-6)."""
    return scenario.variant in RESHAPED and keeps_entries(scenario)


def _following(scenario: Scenario, observed: ObservedRun) -> Following | None:
    """Return what is taken of the entries that a subject stored: how it rounded them to FP8 (S-KV-6)."""
    if not keeps_entries(scenario):
        return None
    texts = [request.prompt + observed.texts.get(index, ()) for index, request in enumerate(scenario.requests)]
    return Following(observed.stored, texts, partial(slack_of_entries, scenario))
