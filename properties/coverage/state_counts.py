"""What was exercised of recurrent states and of step counts that change.

`K` drafts of a round, `W` the verify width of a launch, `M` the checkpoint interval.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from draftproof.properties.evidence.evidence import VERIFY, Evidence
from draftproof.properties.evidence.rounds import Round
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.values.trace import Key

# Generated scenarios have at most five drafts a round.
_WIDTHS = range(1, 7)
HYBRID = (
    "hybrid_scenarios",
    "states_committed_none",
    "states_committed_partial",
    "states_committed_all",
    "states_committed_without_drafts",
    "states_alternating",
    "state_slot_reuses",
    "states_started",
    "snapshot_rounds",
    "replays_folded",
    "checkpoints_snapshot",
    "checkpoints_replay",
    "checkpoints_two_at_once",
    "checkpoints_kept",
    "finals",
    "finals_flushed",
    "hybrid_padded_replays",
    "hybrid_oversized_batches",
)
NAMES = (
    *HYBRID,
    "adaptive_scenarios",
    "step_switches_up",
    "step_switches_down",
    "batches_without_drafts",
    "drafts_after_batch_without",
    "batches_too_large_for_drafts",
    "narrow_replays",
    *(f"verifies_at_width_{width}" for width in _WIDTHS),
    "verifies_at_larger_widths",
)


def counts(evidence: Evidence, rounds: Sequence[Round]) -> Counter[str]:
    """Every name of NAMES that is not 0."""
    counter: Counter[str] = Counter(adaptive_scenarios=int(evidence.scenario.adaptive is not None))
    counter.update(_control(evidence))
    counter.update(_widths(evidence))
    if evidence.hybrid:
        counter["hybrid_scenarios"] = 1
        counter.update(_commits(evidence, rounds))
        counter.update(_slots(evidence))
    return counter


def _commits(evidence: Evidence, rounds: Sequence[Round]) -> Counter[str]:
    """States committed, by what of the drafts was accepted."""
    found: Counter[str] = Counter()
    states, subject = evidence.scenario.states, evidence.subject
    for round_ in rounds:
        drafts, accepted = round_.drafts, round_.accepted
        how = "without_drafts" if not drafts else "all" if accepted == drafts else "partial" if accepted else "none"
        found[f"states_committed_{how}"] += 1
        found["snapshot_rounds"] += int(states.commit == "snapshot" and drafts > 0)
        pending = subject.channel("commit.pending").get(Key(round_.request, round_.number - 1), 0)
        found["replays_folded"] += int(isinstance(pending, int) and pending > 0)
        found["hybrid_padded_replays"] += int(round_.padded)
        if states.checkpoint:
            end = subject.channel("commit.length").get(Key(round_.request, round_.number), round_.context)
            passed = int(end) // states.checkpoint - round_.context // states.checkpoint  # type: ignore[arg-type]
            found["checkpoints_two_at_once"] += int(passed > 1)
            found[f"checkpoints_{states.commit}"] += int(passed > 0)
            found["checkpoints_kept"] += int(not passed and int(end) >= states.checkpoint)  # type: ignore[arg-type]
    for one, other in itertools.pairwise(rounds):
        both = one.request == other.request and one.drafts > 0 and other.drafts > 0
        extremes = {one.accepted == one.drafts, other.accepted == other.drafts} == {True, False}
        found["states_alternating"] += int(both and extremes and 0 in (one.accepted, other.accepted))
    found["finals"] = len({key.request for key in subject.channel("commit.final")})
    found["finals_flushed"] = sum(key.round > 0 for key in subject.channel("commit.unfolded"))
    return found


def _slots(evidence: Evidence) -> Counter[str]:
    """Requests that got a slot that another had, and those that must begin from what no slot holds by itself: from a
    state that is not zero, or for a real model from zero where there is poison."""
    slots = {key.request: slot for key, slot in evidence.subject.channel("round.state").items() if key.round == 0}
    model = evidence.scenario.model
    begins = model.linear is not None and model.linear.start if isinstance(model, ProbeModel) else True
    return Counter(state_slot_reuses=len(slots) - len(set(slots.values())), states_started=len(slots) * int(begins))


def _control(evidence: Evidence) -> Counter[str]:
    """Switches of the step count, and batches without any draft."""
    found: Counter[str] = Counter()
    decode = [rows for (_, phase), rows in sorted(evidence.batches.items()) if phase]
    in_force = [evidence.steps_in_force(rows[0].step) for rows in decode]
    for before, after in itertools.pairwise(in_force):
        found["step_switches_up"] += int(after > before)
        found["step_switches_down"] += int(after < before)
    most = evidence.scenario.schedule.draft_batch
    without = [not any(row.count for row in rows) for rows in decode]
    found["batches_without_drafts"] = sum(without)
    found["batches_too_large_for_drafts"] = sum(0 < most < len(rows) for rows in decode)
    found["drafts_after_batch_without"] = sum(
        none and not later and bool({row.request for row in rows} & {row.request for row in after if row.count})
        for (rows, none), (after, later) in itertools.pairwise(zip(decode, without, strict=True))
    )
    return found


def _widths(evidence: Evidence) -> Counter[str]:
    found: Counter[str] = Counter()
    for launch in evidence.launches:
        if launch.kind == VERIFY:
            known = launch.width in _WIDTHS
            found[f"verifies_at_width_{launch.width}" if known else "verifies_at_larger_widths"] += 1
            found["narrow_replays"] += int(launch.replays > 0 and launch.width <= evidence.scenario.steps)
    return found
