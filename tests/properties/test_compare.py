"""A divergence says where it is first, how much of it there is, and where the wrong value came from."""

import numpy as np
import pytest

from draftproof.properties.diagnosis.compare import Values, first_divergence
from draftproof.properties.values import relations as rel
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Divergence

HIDDEN, POSITIONS, CHOICE = "draft.step.hidden_in", "draft.step.positions", "verify.choice"


def lanes(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


def at(step: int, round_: int = 1, request: int = 0) -> Key:
    return Key(request, round_, step=step)


def found(channel: str, expected: Values, got: Values, **options) -> Divergence:
    divergence = first_divergence("a.contract", channel, expected, got, **options)
    assert divergence is not None
    return divergence


def test_equal_readings_have_no_divergence() -> None:
    assert first_divergence("a.contract", POSITIONS, {at(1): 4}, {at(1): 4}) is None


@pytest.mark.parametrize(
    ("got", "relation"),
    [(6, rel.OffBy(2)), (3, rel.OffBy(-1)), (None, rel.Missing())],
    ids=["ahead", "behind", "missing"],
)
def test_integers(got: int | None, relation: rel.Relation) -> None:
    values: dict[Key, Datum] = {} if got is None else {at(1): got}
    assert found(POSITIONS, {at(1): 4}, values).relation == relation


def test_a_single_id_is_not_looked_for_in_other_requests() -> None:
    right: dict[Key, Datum] = {Key(0, 1, row=0): 4, Key(0, 1, row=1): 5, Key(1, 1, row=0): 6}
    assert found("verify.ids", right, {**right, Key(0, 1, row=0): 5}).relation == rel.OtherRow(row=1)
    assert found("verify.ids", right, {**right, Key(0, 1, row=0): 6}).relation == rel.Different()


def test_a_surplus_value_is_named() -> None:
    divergence = found(POSITIONS, {at(1): 4}, {at(1): 4, at(2): 5})
    assert (divergence.relation, divergence.expected, divergence.step) == (rel.Surplus(), "nothing", 2)


RIGHT: dict[Key, Datum] = {
    at(1): lanes(11, 12),
    at(2): lanes(21, 22),
    at(1, round_=2): lanes(31, 32),
    at(1, request=1): lanes(41, 42),
}


@pytest.mark.parametrize(
    ("place", "value", "relation"),
    [
        (at(2), lanes(11, 12), rel.Stale("step", 1)),
        (at(1, round_=2), lanes(11, 12), rel.Stale("round", 1)),
        (at(1), lanes(31, 32), rel.TooEarly("round", 2)),
        (at(1), lanes(41, 42), rel.OtherRow(request=1)),
        (at(1), lanes(0, 0), rel.Zero()),
        (at(1), lanes(11, 0xFFFFFFFFFFFFFFFF), rel.Poison()),
        (at(1), b"\x5a" * 16, rel.Poison()),
        (at(1), lanes(11, 13), rel.Different()),
    ],
)
def test_vectors(place: Key, value: bytes, relation: rel.Relation) -> None:
    assert found(HIDDEN, RIGHT, {**RIGHT, place: value}).relation == relation


def test_the_first_differing_lane_is_shown_in_hexadecimal() -> None:
    divergence = found(HIDDEN, RIGHT, {**RIGHT, at(2): lanes(21, 255)})
    assert (divergence.index, divergence.expected, divergence.got) == (1, f"0x{22:016x}", f"0x{255:016x}")


def test_the_first_is_the_smallest_in_the_order_of_the_channel_table() -> None:
    wrong = {key: lanes(1, 1) for key in RIGHT}
    divergence = found(HIDDEN, RIGHT, wrong)
    assert (divergence.request, divergence.round, divergence.step) == (0, 1, 1)
    assert (divergence.count, divergence.total) == (4, 4)
    one = found(HIDDEN, RIGHT, {**RIGHT, at(2): lanes(1, 1)})
    assert (one.count, one.total) == (1, 4)


def test_a_choice_carries_the_margin_of_the_reference() -> None:
    key = Key(0, 1, row=0)
    divergence = found(CHOICE, {key: (3, 17.0)}, {key: (4, 2.0)})
    assert (divergence.margin, divergence.expected, divergence.got) == (17.0, "3 (margin 17)", "4 (margin 2)")


@pytest.mark.parametrize(
    ("got", "relation"), [((1, 2, 3), rel.Resized(1)), ((1,), rel.Resized(-1)), ((1, 9), rel.Different())]
)
def test_tuples(got: tuple[int, ...], relation: rel.Relation) -> None:
    key = Key(0, 1)
    assert found("accept.emitted", {key: (1, 2)}, {key: got}).relation == relation


def test_a_slot_is_named_by_its_position() -> None:
    divergence = found("verify.slots", {Key(0, 1, row=0): 9}, {Key(0, 1, row=0): 14}, position_of_slot=lambda _k, _s: 5)
    assert divergence.relation == rel.SlotOf(5)


def test_floats_are_held_to_the_bound_given() -> None:
    key = at(1)
    expected, got = {key: np.array([1.0, 2.0])}, {key: np.array([1.0, 2.25])}
    assert first_divergence("c", HIDDEN, expected, got, near=lambda _k, a, b: bool(np.abs(a - b).max() < 0.5)) is None
    divergence = found(HIDDEN, expected, got)
    assert (divergence.index, divergence.expected, divergence.got) == (1, "2.0", "2.25")


@pytest.mark.parametrize("size", [0, 1, 2])
def test_floats_in_place_of_integers_are_a_difference(size: int) -> None:
    whole, floats = lanes(*range(size)), np.arange(size, dtype=np.float64)
    expected, got = {at(1): whole, at(2): whole}, {at(1): whole, at(2): floats}
    assert found(HIDDEN, expected, got).key == at(2)
    assert found(HIDDEN, {at(2): floats}, {at(2): whole}).key == at(2)


def test_not_a_number_is_a_difference() -> None:
    one = {at(1): np.array([1.0])}
    assert found(HIDDEN, one, {at(1): np.array([np.nan])}).relation == rel.Poison()


@pytest.mark.parametrize(
    ("got", "relation"),
    [
        ((1, 2), rel.Resized(-1)),
        ((), rel.Resized(-3)),
        ((4, 5), rel.Stale("round", 1)),
        ((6, 9, 7), rel.OtherRow(request=1)),
        ((6, 7), rel.Different()),
        ((3, 4, 5), rel.OffBy(2)),
        ((9, 9), rel.Different()),
    ],
)
def test_tokens_are_looked_for_elsewhere(got: tuple[int, ...], relation: rel.Relation) -> None:
    right: dict[Key, Datum] = {
        Key(0, 1): (4, 5),
        Key(0, 2): (1, 2, 3),
        Key(1, 2): (6, 9, 7),
        Key(1, 3): (6, 7),
        Key(2, 2): (8,),
    }
    assert found("propose.tokens", right, {**right, Key(0, 2): got}).relation == relation
