"""Relations in words: how a wrong value relates to the right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from draftproof.properties.values import relations as of
from draftproof.properties.values.relations import Relation, StridePair, TensorLocation, VerifyRow, direction

_CLOSE = 0.5
"""A logit that is as near to the best may be the best in bfloat16, or with a KV cache in 8 bits."""
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def phrase(relation: Relation) -> str:
    """Return a relation in words; "" if it says no more than the two values do."""
    words = _WORDS[type(relation)]
    return words.format(relation) if isinstance(words, str) else words(relation)


def _apart(by: int) -> str:
    """Return "one ahead" of 1, "12 behind" of -12."""
    count = abs(by)
    return f"{_NUMBERS[count] if count < len(_NUMBERS) else count} {direction(by)}"


def _of_round(relation: of.Stale | of.TooEarly) -> str:
    return f"{'in part ' if relation.in_part else ''}that of {relation.of} {relation.number}"


def _other_row(relation: of.OtherRow) -> str:
    return f"that of request {relation.request}" if relation.request >= 0 else f"that of row {relation.row}"


def _state_slot_of(relation: of.StateSlotOf) -> str:
    row = f"row {relation.row} of " if relation.row >= 0 else ""
    return f"that of {row}request {relation.request}"


def _other_state(relation: of.OtherState) -> str:
    left = ", left by an earlier round" if relation.earlier_round else ""
    whose = f" of request {relation.request}" if relation.request >= 0 else f", {_apart(relation.by)}"
    return f"the state of row {relation.row}{whose}{left}"


def _not_greedy(relation: of.NotGreedy) -> str:
    told = "not plain greedy decoding"
    if relation.token < 0:
        return told
    if relation.below is None:
        return f"{told}; token number {relation.token} is not allowed there, by a grammar or a minimum of tokens"
    told += f"; token number {relation.token} is {relation.below:.2g} below the best logit"
    return f"{told}: a lower precision may be why, be it of a KV cache" if relation.below < _CLOSE else told


def _wrong_feature(relation: of.WrongFeature) -> str:
    got = {"feature": f" is feature {relation.source}", "last": " is the last hidden state", "unknown": ""}
    return f"feature {relation.number} of {relation.count}{got[relation.found]}"


def _wrong_match(relation: of.WrongMatch) -> str:
    by, tokens = abs(relation.by), "token" if abs(relation.by) == 1 else "tokens"
    return {
        "lost": "no match was found",
        "invented": "there is no match",
        "length": f"{by} {tokens} {'more' if relation.by > 0 else 'fewer'}",
        "place": f"the place is {_apart(relation.by)}",
    }[relation.of]


def _stride(relation: of.Stride) -> str:
    moved = [f"was written where {_verify_row(relation.belongs)} belongs"] if relation.belongs else []
    if relation.source:
        source = _verify_row(relation.source)
        came = {"lies": f"where {source} lies", "written": f"where {source} was written"}
        moved.append(f"reads {came.get(relation.how, f'what {source} left in an earlier round')}")
    explained = f"this explains {relation.explained} of {relation.wrong} wrong states of the batch"
    return f"stride {_pitch(relation.pitch)}: {_verify_row(relation.row)} {' and '.join(moved)}; {explained}"


def _row_elsewhere(relation: of.RowElsewhere) -> str:
    return f"{_spot(relation.at)} holds what belongs to row {relation.belongs}{_because(relation.cause)}"


def _row_taken(relation: of.RowTaken) -> str:
    right = f"{_spot(relation.got)} of {relation.argument} instead of {_spot(relation.expected)}"
    return f"row {relation.index} holds {right}{_because(relation.cause)}"


def _in_memory(relation: of.InMemory) -> str:
    places = {
        "read only": "a kernel may only read it",
        "around": "in the memory around the tensor",
        "outside": "a lane reads what is no element of a tensor; on a GPU it may fault",
    }
    return places.get(relation.place, "")


_WORDS: Mapping[type, str | Callable[[Any], str]] = {
    # Expected and got say it already.
    of.Missing: "",
    of.Surplus: "",
    of.Different: "",
    of.Zero: "all zero",
    of.Poison: "uninitialized memory",
    of.Moved: "a request keeps what it was given",
    of.OutOfRange: "out of range",
    of.OutOfOrder: "out of order",
    of.SharedPage: "twice in one page table",
    of.Unowned: "owned by no request",
    of.OutsidePools: "outside of all pools",
    of.GuardOverwritten: "guard bytes overwritten",
    of.NotGreedy: _not_greedy,
    of.OffBy: lambda relation: _apart(relation.by),
    of.Resized: lambda relation: f"{relation.change} by {abs(relation.by)}",
    of.Stale: lambda relation: f"stale: {_of_round(relation)}",
    of.TooEarly: _of_round,
    of.OtherLayer: "that of layer {0.layer}",
    of.OtherRow: _other_row,
    of.SlotOf: "the slot of position {0.position}",
    of.StateSlotOf: _state_slot_of,
    of.OtherState: _other_state,
    of.ChoiceOf: lambda relation: f"the choice after row {relation.row}, {_apart(relation.by)}",
    of.WrongFeature: _wrong_feature,
    of.WrongMatch: _wrong_match,
    of.Stride: _stride,
    of.RowElsewhere: _row_elsewhere,
    of.RowTaken: _row_taken,
    of.RowUnwritten: "row {0.index} is as it was before",
    of.RowOverwritten: "row {0.index} must stay as it was",
    of.InMemory: _in_memory,
}


def _pitch(pitch: StridePair) -> str:
    sizes = ((pitch.got_name, pitch.got), (pitch.expected_name, pitch.expected))
    return " instead of ".join(f"{name}={size}" if name else str(size) for name, size in sizes)


def _verify_row(row: VerifyRow) -> str:
    return f"row {row.row} of " + (f"request {row.request}" if row.request >= 0 else f"batch place {row.place}")


def _spot(spot: TensorLocation) -> str:
    if spot.kind == "around":
        return f"the memory around it, at offset {spot.index[0]},"
    return f"row {spot.index}" if spot.kind == "row" else f"what begins at {spot.index}"


def _because(cause: of.Cause | None) -> str:
    if isinstance(cause, of.WrongStride):
        where = f" elements in dimension {cause.dimension}" if cause.dimension >= 0 else ""
        return f"; a stride of {_pitch(cause.pitch)}{where} explains it"
    if isinstance(cause, of.SwappedStrides):
        return f"; the strides of dimensions {cause.first} and {cause.second} taken for one another explain it"
    return f"; so it is with {cause.rows} rows, all moved by {cause.by} elements" if cause else ""
