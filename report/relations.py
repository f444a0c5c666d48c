"""Relations in words: how a wrong value relates to the right one."""

from __future__ import annotations

from functools import singledispatch

from draftproof.properties.values.relations import (
    ChoiceOf,
    Different,
    GuardOverwritten,
    InMemory,
    Missing,
    Moved,
    NotGreedy,
    OffBy,
    OtherLayer,
    OtherRow,
    OtherState,
    OutOfOrder,
    OutOfRange,
    OutsidePools,
    Pitch,
    Poison,
    Relation,
    Resized,
    RowElsewhere,
    RowOverwritten,
    RowTaken,
    RowUnwritten,
    SharedPage,
    Shifted,
    SlotOf,
    Spot,
    Stale,
    StateSlotOf,
    Stride,
    Surplus,
    SwappedStrides,
    TooEarly,
    Unowned,
    VerifyRow,
    WrongFeature,
    WrongMatch,
    WrongStride,
    Zero,
    direction,
)

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_PLAIN: dict[type, str] = {
    # Expected and got say it already.
    Missing: "",
    Surplus: "",
    Different: "",
    Zero: "all zero",
    Poison: "uninitialized memory",
    Moved: "a request keeps what it was given",
    OutOfRange: "out of range",
    OutOfOrder: "out of order",
    SharedPage: "twice in one page table",
    Unowned: "owned by no request",
    OutsidePools: "outside of all pools",
    GuardOverwritten: "guard bytes overwritten",
    NotGreedy: "not plain greedy decoding",
}


@singledispatch
def phrase(relation: Relation) -> str:
    """Return a relation in words; "" if it says no more than the two values do."""
    return _PLAIN[type(relation)]


@phrase.register
def _off_by(relation: OffBy) -> str:
    return _apart(relation.by)


@phrase.register
def _resized(relation: Resized) -> str:
    return f"{relation.change} by {abs(relation.by)}"


@phrase.register
def _stale(relation: Stale) -> str:
    return f"stale: {_in_part(relation)}that of {relation.of} {relation.number}"


@phrase.register
def _too_early(relation: TooEarly) -> str:
    return f"{_in_part(relation)}that of {relation.of} {relation.number}"


@phrase.register
def _other_layer(relation: OtherLayer) -> str:
    return f"that of layer {relation.layer}"


@phrase.register
def _other_row(relation: OtherRow) -> str:
    return f"that of request {relation.request}" if relation.request >= 0 else f"that of row {relation.row}"


@phrase.register
def _slot_of(relation: SlotOf) -> str:
    return f"the slot of position {relation.position}"


@phrase.register
def _state_slot_of(relation: StateSlotOf) -> str:
    row = f"row {relation.row} of " if relation.row >= 0 else ""
    return f"that of {row}request {relation.request}"


@phrase.register
def _other_state(relation: OtherState) -> str:
    left = ", left by an earlier round" if relation.earlier_round else ""
    if relation.request >= 0:
        return f"the state of row {relation.row} of request {relation.request}{left}"
    return f"the state of row {relation.row}, {_apart(relation.by)}{left}"


@phrase.register
def _choice_of(relation: ChoiceOf) -> str:
    return f"the choice after row {relation.row}, {_apart(relation.by)}"


@phrase.register
def _wrong_feature(relation: WrongFeature) -> str:
    which = f"feature {relation.number} of {relation.count}"
    found = {"feature": f" is feature {relation.source}", "last": " is the last hidden state", "unknown": ""}
    return f"{which}{found[relation.found]}"


@phrase.register
def _wrong_match(relation: WrongMatch) -> str:
    by, tokens = abs(relation.by), "token" if abs(relation.by) == 1 else "tokens"
    return {
        "lost": "no match was found",
        "invented": "there is no match",
        "length": f"{by} {tokens} {'more' if relation.by > 0 else 'fewer'}",
        "place": f"the place is {_apart(relation.by)}",
    }[relation.of]


@phrase.register
def _stride(relation: Stride) -> str:
    row = _verify_row(relation.row)
    moved = [f"was written where {_verify_row(relation.belongs)} belongs"] if relation.belongs else []
    if relation.source:
        source = _verify_row(relation.source)
        came = {"lies": f"where {source} lies", "written": f"where {source} was written"}
        moved.append(f"reads {came.get(relation.how, f'what {source} left in an earlier round')}")
    explained = f"this explains {relation.explained} of {relation.wrong} wrong states of the batch"
    return f"stride {_pitch(relation.pitch)}: {row} {' and '.join(moved)}; {explained}"


@phrase.register
def _row_elsewhere(relation: RowElsewhere) -> str:
    return f"{_spot(relation.at)} holds what belongs to row {relation.belongs}{_because(relation)}"


@phrase.register
def _row_taken(relation: RowTaken) -> str:
    right = f"{_spot(relation.got)} of {relation.argument} instead of {_spot(relation.expected)}"
    return f"row {relation.index} holds {right}{_because(relation)}"


@phrase.register
def _row_unwritten(relation: RowUnwritten) -> str:
    return f"row {relation.index} is as it was before"


@phrase.register
def _row_overwritten(relation: RowOverwritten) -> str:
    return f"row {relation.index} must stay as it was"


@phrase.register
def _in_memory(relation: InMemory) -> str:
    places = {"read only": "a kernel may only read it", "around": "in the memory around the tensor"}
    return places.get(relation.place, "")


def _apart(by: int) -> str:
    """Return "one ahead" of 1, "12 behind" of -12."""
    count = abs(by)
    return f"{_NUMBERS[count] if count < len(_NUMBERS) else count} {direction(by)}"


def _in_part(relation: Stale | TooEarly) -> str:
    return "in part " if relation.in_part else ""


def _pitch(pitch: Pitch) -> str:
    got, expected = (
        f"{name}={size}" if name else str(size)
        for name, size in ((pitch.got_name, pitch.got), (pitch.expected_name, pitch.expected))
    )
    return f"{got} instead of {expected}"


def _verify_row(row: VerifyRow) -> str:
    return f"row {row.row} of " + (f"request {row.request}" if row.request >= 0 else f"batch place {row.place}")


def _spot(spot: Spot) -> str:
    if spot.kind == "around":
        return f"the memory around it, at offset {spot.index[0]},"
    return f"row {spot.index}" if spot.kind == "row" else f"what begins at {spot.index}"


def _because(relation: RowElsewhere | RowTaken) -> str:
    cause = relation.cause
    if isinstance(cause, WrongStride):
        where = f" elements in dimension {cause.dimension}" if cause.dimension >= 0 else ""
        return f"; a stride of {_pitch(cause.pitch)}{where} explains it"
    if isinstance(cause, SwappedStrides):
        return f"; the strides of dimensions {cause.first} and {cause.second} taken for one another explain it"
    return f"; so it is with {cause.rows} rows, all moved by {cause.by} elements" if isinstance(cause, Shifted) else ""
