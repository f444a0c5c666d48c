"""What is said of recurrent states that are wrong, each way in which engines got them wrong."""

from collections.abc import Callable, Mapping

import msgspec
import pytest

from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.validate import validate
from draftproof.properties.values.adaptive_steps import Adaptive
from draftproof.properties.values.observed import (
    Datum,
    LaunchKind,
    MemoryRegion,
    Owner,
    StatePoolReport,
    WriteSet,
    WrittenPlace,
)
from draftproof.properties.values.relations import (
    Moved,
    OtherRow,
    OtherState,
    OutOfRange,
    Poison,
    Relation,
    Resized,
    Stale,
    StateSlotOf,
    Stride,
    StridePair,
    VerifyRow,
    Zero,
)
from draftproof.properties.values.scenario import Graphs, Memory, Scenario, Schedule, Variant
from draftproof.properties.values.trace import Key
from tests.properties.breaking import edited, failure, with_value
from tests.properties.evidence import ADAPTIVE, HEAD, MODEL, STATIC, evidence, request
from tests.properties.ideal import IdealSubject

# Three requests alike: all decode together, in batches of three rows; a round of one draft runs at the full width.
TOGETHER = validate(
    Scenario(
        model=MODEL,
        draft=HEAD,
        steps=4,
        memory=Memory(page_size=3, pages=24, request_slots=3, max_len=30),
        graphs=Graphs(),
        schedule=Schedule(max_batch=3, chunk=16),
        requests=tuple(request(0, prompt, 12, "4/2 3/3 0/0 4/0 4/4") for prompt in (5, 6, 7)),
    )
)
# The first rounds have two drafts of three that there may be.
NARROW = validate(
    msgspec.structs.replace(
        TOGETHER,
        steps=3,
        adaptive_steps=Adaptive(initial=2, candidates=(2, 3)),
        requests=tuple(request(0, prompt, 12, "3/1 3/3 2/0") for prompt in (5, 6, 7)),
    )
)

# Two requests whose first round is half as wide as what is allocated.
WIDER = validate(
    msgspec.structs.replace(
        TOGETHER,
        steps=5,
        adaptive_steps=Adaptive(initial=2, candidates=(2, 5)),
        requests=tuple(request(0, prompt, 12, "5/1 5/5") for prompt in (5, 6)),
    )
)


def pool(of: Evidence, step: int, layer: int, stride: int) -> Mapping[int, Datum]:
    """The flat pool that the verifies up to an engine step leave, written at a stride."""
    states: dict[int, Datum] = {}
    for row in (row for row in of.schedule.rows if row.phase and row.step <= step):
        for key, value in of.reference.of("commit.intermediate", request=row.request, round=row.round, layer=layer):
            states[row.place * stride + key.row] = value
    return states


def strided(of: Evidence, channel: str, written: int, read: int) -> Evidence:
    """Every state of a channel as it is read at one stride from pools that were written at another."""
    rows = {(row.request, row.round): row for row in of.schedule.rows if row.phase}

    def state(key: Key, value: bytes) -> Datum:
        row, index = rows[key[:2]], of.reference.channel("commit.step_index")[key._replace(layer=-1, row=-1)]
        place = row.place * read + (index if key.row < 0 else key.row)  # type: ignore[operator]
        return pool(of, row.step, key.layer, written).get(place, b"\xff" * len(value))

    return edited(of, channel, state, lambda key: key[:2] in rows)


@pytest.mark.parametrize("channel", ["commit.state", "commit.intermediate"])
def test_a_read_at_the_stride_of_the_width_in_force_is_a_stride(channel: str) -> None:
    of = lockstep(IdealSubject(), NARROW)
    assert {of.plans.width(row.step) for row in of.schedule.rows if row.phase} >= {3}
    found = failure(channel, strided(of, channel, written=4, read=3))
    assert isinstance(found.relation, Stride)
    assert found.relation.pitch == StridePair(3, 4, "W", "A")
    assert found.relation.source is not None
    assert (found.relation.belongs, found.relation.how) == (None, "lies")


@pytest.mark.parametrize(("written", "read"), [(5, 3), (5, 4), (3, 5), (4, 5)])
@pytest.mark.parametrize("channel", ["commit.state", "commit.intermediate"])
def test_any_wrong_stride_is_found_if_rows_of_several_places_agree(channel: str, written: int, read: int) -> None:
    found = failure(channel, strided(lockstep(IdealSubject(), TOGETHER), channel, written, read))
    wrong = read if written == 5 else written
    assert isinstance(found.relation, Stride)
    assert found.relation.pitch == StridePair(wrong, 5, "", "A")
    assert found.relation.source is not None
    assert found.relation.how == ("lies" if written == 5 else "written")


def test_a_step_index_too_low_is_no_stride() -> None:
    of = lockstep(IdealSubject(), TOGETHER)
    rows = {(row.request, row.round) for row in of.schedule.rows if row.phase}
    index, kept = (of.reference.channel(f"commit.{name}") for name in ("step_index", "intermediate"))
    lower = edited(
        of,
        "commit.state",
        lambda key, _: kept[key._replace(row=index[Key(*key[:2])] - 1)],  # type: ignore[operator]
        lambda key: key[:2] in rows and index.get(Key(*key[:2])),
    )
    assert failure("commit.state", lower).relation == OtherState(1, -1)


def test_rows_that_only_their_writes_show_astray_are_a_stride() -> None:
    of = lockstep(IdealSubject(), WIDER)
    lost = strided(of, "commit.intermediate", written=3, read=6)
    assert failure("commit.intermediate", lost).relation == Poison()
    for place in (3, 4, 5):
        lost = written(lost, LaunchKind.VERIFY, 4, place)
    assert failure("commit.intermediate", lost).relation == Stride(
        StridePair(3, 6, "W", "A"), VerifyRow(0, 1), explained=6, wrong=6, belongs=VerifyRow(3, 0)
    )
    assert failure("commit.intermediate", written(lost, LaunchKind.VERIFY, 4, 2 * 6 - 1)).relation == Poison()


def test_one_wrong_row_is_no_stride() -> None:
    """Row 1 of request 1 reads what would lie there at a stride of 3, and no other row does."""
    of = lockstep(IdealSubject(), NARROW)
    key, layer = Key(1, 1, row=1), 0
    state = of.reference.channel("commit.intermediate")[Key(0, 1, layer=layer, row=2)]
    one = with_value(of, "commit.intermediate", key._replace(layer=layer), state)
    assert failure("commit.intermediate", one).relation == OtherState(2, request=0)


def test_of_two_wrong_states_that_of_the_earlier_engine_step_is_shown() -> None:
    """The last request begins when the others have had many rounds."""
    of = evidence()
    early, late = Key(0, 2, layer=0), Key(3, 1, layer=0)
    assert of.schedule.decode_steps[early[:2]] < of.schedule.decode_steps[late[:2]]
    both = of
    for key in (early, late):
        zero = bytes(len(of.subject.channel("commit.state")[key]))  # type: ignore[arg-type]
        both = with_value(both, "commit.state", key, zero)
    found = failure("commit.state", both)
    assert (found.request, found.round, found.relation, found.count) == (0, 2, Zero(), 2)


def swapped(one: Key) -> Key:
    return one._replace(request={0: 1, 1: 0}.get(one.request, one.request))


@pytest.mark.parametrize(
    ("channel", "key", "relation"),
    [
        ("commit.state", lambda key: key._replace(round=key.round - 1), Stale("round", 0)),
        ("commit.state", swapped, OtherState(2, request=1)),
        ("commit.final", lambda key: None, Zero()),
        ("commit.state", lambda key: None, Zero()),
    ],
)
def test_a_state_of_elsewhere_says_where_it_is_from(
    channel: str, key: Callable[[Key], Key | None], relation: Relation
) -> None:
    of = lockstep(IdealSubject(), TOGETHER)

    known = of.reference.channel(channel)
    wrong = edited(
        of,
        channel,
        lambda own, value: known[source] if (source := key(own)) else bytes(len(value)),
        lambda own: own.round,
    )
    assert failure(channel, wrong).relation == relation


@pytest.mark.parametrize("window", [True, False], ids=["window", "matrix"])
def test_a_part_that_was_not_committed_is_stale(window: bool) -> None:
    """The window and the matrix lie in pools of their own, and one of them may be forgotten."""
    of = lockstep(IdealSubject(), TOGETHER)
    split = 8 * (MODEL.linear.conv - 1) * MODEL.linear.channels  # type: ignore[union-attr]

    def stale(key: Key, value: bytes) -> bytes:
        old: bytes = of.reference.channel("commit.state")[key._replace(round=key.round - 1)]  # type: ignore[assignment]
        return old[:split] + value[split:] if window else value[:split] + old[split:]

    wrong = edited(of, "commit.state", stale, lambda key: key.round)
    assert failure("commit.state", wrong).relation == Stale("round", 0, in_part=True)


def test_a_state_slot_of_two_owners_is_named() -> None:
    of = evidence()
    taken = of.subject.channel("round.state")[Key(0, 0)]
    both = edited(of, "round.state", lambda *_: taken, lambda key: key.request == 1)
    assert failure("state.ownership", both).relation == OtherRow(request=0)
    moved = with_value(of, "round.state", Key(0, 2), 3 if taken != 3 else 2)
    assert failure("state.ownership", moved).relation == Moved()
    beyond = edited(of, "round.state", lambda *_: 4)
    assert failure("state.ownership", beyond).relation == OutOfRange()
    assert failure("state.bounds", beyond).relation == OutOfRange()


def test_a_state_slot_that_never_comes_back_is_missed() -> None:
    of = evidence()
    last = max(of.subject.channel("pool.states"))
    leaked = with_value(of, "pool.states", last, StatePoolReport(2, ()))
    assert failure("state.balance", leaked).round == last.round
    kept = with_value(of, "pool.states", last, StatePoolReport(2, (Owner(1, 0),)))
    assert failure("state.balance", kept).round == last.round
    assert failure("state.ownership", kept).relation == Resized(2)


def written(of: Evidence, kind: int, region: int, slot: int) -> Evidence:
    """One more place in what the first launch of a kind changed."""
    launch = next(launch for launch in of.schedule.launches if launch.kind == kind)
    key = Key(-1, launch.step, step=launch.number)
    places = {*of.subject.typed("commit.written", WriteSet)[key], WrittenPlace(MemoryRegion(region), slot)}
    return with_value(of, "commit.written", key, tuple(sorted(places)))


@pytest.mark.parametrize(
    ("scenario", "kind", "region", "slot", "got"),
    [
        (STATIC, LaunchKind.VERIFY, 3, 1, "state slot 1"),
        (STATIC, LaunchKind.VERIFY, 4, 4, "intermediate state 4 (batch place 1, row 0)"),
        (STATIC, LaunchKind.VERIFY, 5, 1, "checkpoint slot 1"),
        (STATIC, LaunchKind.FINISH, 3, 1, "state slot 1"),
        (ADAPTIVE, LaunchKind.VERIFY, 3, 3, "state slot 3"),
        (ADAPTIVE, LaunchKind.VERIFY, 4, 0, "intermediate state 0 (batch place 0, row 0)"),
    ],
)
def test_a_state_written_astray_is_named(scenario: Scenario, kind: int, region: int, slot: int, got: str) -> None:
    of = lockstep(IdealSubject(), msgspec.structs.replace(scenario, requests=scenario.requests[:1]))
    assert list(find("memory.written").check(of)) == []
    assert failure("memory.written", written(of, kind, region, slot)).got == got


def test_an_intermediate_state_that_is_not_written_is_missed() -> None:
    of = evidence()
    launch = next(launch for launch in of.schedule.launches if launch.kind == LaunchKind.VERIFY)
    key = Key(-1, launch.step, step=launch.number)
    gone = WrittenPlace(MemoryRegion.INTERMEDIATE, 1)
    kept = tuple(place for place in of.subject.typed("commit.written", WriteSet)[key] if place != gone)
    lost = with_value(of, "commit.written", key, kept)
    found = failure("memory.written", lost)
    assert (found.got, found.relation) == ("unchanged", StateSlotOf(0, 1))


@pytest.mark.parametrize("variant", ["other_commit", "other_memory", "other_batches"])
@pytest.mark.parametrize("scenario", [STATIC, ADAPTIVE], ids=["snapshot", "replay"])
def test_variants_hold_and_notice_a_state(variant: Variant, scenario: Scenario) -> None:
    of = evidence(variant, scenario)
    assert list(find(f"variant.{variant}").check(of)) == []
    key = max(of.subject.channel("commit.state"))
    found = failure(
        f"variant.{variant}",
        with_value(of, "commit.state", key, bytes(len(of.subject.channel("commit.state")[key]))),
    )  # type: ignore[arg-type]
    assert found.channel == "commit.state"


def test_the_other_way_to_commit_is_judged_as_a_run_of_its_own() -> None:
    of = evidence("other_commit", STATIC)
    assert of.varied_reference is not None
    assert of.varied_reference.channel("commit.base") == of.varied.channel("commit.base")  # type: ignore[union-attr]
    assert of.varied_reference.channel("commit.base")
