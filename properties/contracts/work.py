"""The work of a launch: as much as the layers of the model and the draft ask for, the same at every replay.

A forward that runs twice, or a write that is done twice, leaves every value right and costs as much as it saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import astuple

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.forms import Form
from draftproof.properties.evidence.schedule import StepLaunch
from draftproof.properties.values.observed import LaunchKind, LaunchWork, LayerKind
from draftproof.properties.values.relations import Missing, Surplus, off_by
from draftproof.properties.values.trace import Key


class WorkParts(NamedTuple):
    """What a launch has to do, by the fields of a LaunchWork."""

    writes: int = 0
    attentions: int = 0
    recurrences: int = 0
    commits: int = 0
    decisions: int = 0


def parts(evidence: Evidence, launch: StepLaunch) -> WorkParts:
    """Return the work of a launch by its kind and by the layers of target and draft (S-BATCH-6)."""
    kinds = list(evidence.reference.channel("config.routing").values())
    linear = kinds.count(LayerKind.LINEAR_ATTENTION)
    full = len(kinds) - linear
    states, replay = evidence.scenario.states, evidence.scenario.states.commit == "replay"
    chosen, drawn = evidence.scenario.is_sampled + evidence.scenario.is_penalized, evidence.scenario.drafts_sampled
    # What a tree accepts is written once more, where a chain has it; so are the inputs that a replay keeps.
    writes = (2 + evidence.has_kv_quantization) * full if evidence.form.tree else full
    moves = int(evidence.form.tree is not None and replay and linear > 0)
    if launch.kind == LaunchKind.PREFILL:
        return WorkParts(full, full, 2 * linear, 0, 1 + chosen)
    if launch.kind == LaunchKind.MIXED:
        # States of verify rows are read where a rank has such rows.
        verifies = (launch.step, 1) in evidence.schedule.batches
        verified = (1 if replay else 2) * linear * verifies
        return WorkParts(writes, full, 2 * linear + verified, moves * verifies, 3 + 2 * chosen + drawn)
    if launch.kind == LaunchKind.VERIFY:
        return WorkParts(writes, full, linear if replay else 2 * linear, moves, 2 + chosen + drawn)
    if launch.kind == LaunchKind.COMMIT and replay:
        return WorkParts(recurrences=linear if states.checkpoint else 0, commits=1)
    if launch.kind == LaunchKind.COMMIT:
        return WorkParts(commits=4 if states.checkpoint else 2)
    if launch.kind in (LaunchKind.KEEP, LaunchKind.RESTORE, LaunchKind.INSTALL):
        return WorkParts()
    if launch.kind == LaunchKind.PACK:
        return WorkParts(recurrences=linear if replay else 0)
    if launch.kind == LaunchKind.FINISH:
        return WorkParts(recurrences=linear, commits=1) if replay else WorkParts()
    return _of_draft(evidence.form, launch, drawn=drawn)


def _of_draft(form: Form, launch: StepLaunch, *, drawn: bool) -> WorkParts:
    """Return the work of a draft, an extend or an extend of a prompt; of drafts that are drawn each once more."""
    if launch.kind == LaunchKind.DRAFT:
        forwards = 1 if form.proposes == "block" else form.launched(launch.width)
        draws = (forwards + form.kind.proposes_at_extend) * drawn
        return WorkParts(forwards * form.layers, forwards * form.layers, decisions=forwards + draws)
    # A chain extends by a prompt in one launch, else layer by layer.
    layers = 1 if form.proposes == "chain" and launch.kind == LaunchKind.EXTEND else form.layers
    attentions = 0 if form.proposes == "block" else layers
    choices = (layers if form.proposes == "chain" else 1) if form.kind.proposes_at_extend else 0
    # A tree begins with the best tokens of an extend, beside its choice.
    choices += int(form.tree is not None)
    return WorkParts(layers, attentions, decisions=choices)


def _work(evidence: Evidence) -> Iterator[Mismatch]:
    """Check every launch but captures, which may warm up as often as they like."""
    reported = dict(evidence.subject.typed("graph.work", LaunchWork))
    usual: dict[tuple[int, ...], int] = {}
    for launch in evidence.schedule.launches:
        if launch.kind == LaunchKind.CAPTURE:
            continue
        key, expected = Key(-1, launch.step, step=launch.number), parts(evidence, launch)
        work = reported.pop(key, None)
        if work is None:
            yield Mismatch("graph.work", key, "its work", None, Missing())
            continue
        for name, wanted, got in zip(WorkParts._fields, expected, astuple(work), strict=False):
            if got != wanted:
                yield Mismatch("graph.work", key, f"{wanted} {name}", f"{got} {name}", off_by(wanted, got))
        # How many experts an eager launch runs depends on its tokens.
        kinds = ((launch.step, phase) in evidence.schedule.batches for phase in (0, 1))
        of_kinds = tuple(kinds) if launch.kind == LaunchKind.MIXED else ()
        same = (launch.kind, launch.width, launch.layer, 0 if evidence.exact else launch.size, *of_kinds)
        if evidence.exact or launch.size:
            first = usual.setdefault(same, work.kernels)
            if work.kernels != first:
                got = f"{work.kernels} kernels"
                yield Mismatch("graph.work", key, f"{first} kernels, as before", got, off_by(first, work.kernels))
    for key, surplus in reported.items():
        yield Mismatch("graph.work", key, None, surplus, Surplus())


CONTRACTS = (
    listed(
        "launch.work",
        _work,
        ("graph.work",),
        reads=("graph.replay", "round.rows"),
        cites="S-BATCH-6",
        minimum="scenarios graph_replays eager_launches hybrid_scenarios",
    ),
)
