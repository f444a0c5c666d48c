"""Relations as data: what makes two failures the same one, and their JSON."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from draftproof.properties.values.relations import (
    ChoiceOf,
    Different,
    Missing,
    OffBy,
    OtherRow,
    OtherState,
    PlainRelation,
    Relation,
    Resized,
    RowElsewhere,
    Shifted,
    Stale,
    StateSlotOf,
    Stride,
    StridePair,
    TensorLocation,
    TooEarly,
    VerifyRow,
    WrongFeature,
    WrongMatch,
)

SAME = [
    (OffBy(1), OffBy(7)),
    (Resized(1), Resized(2)),
    (Stale("round", 1), Stale("step", 3)),
    (Stale("round", 1), Stale("round", 1, in_part=True)),
    (TooEarly("round", 4), TooEarly("round", 5)),
    (OtherRow(request=1), OtherRow(row=2)),
    (StateSlotOf(0, 1), StateSlotOf(2, 3)),
    (OtherState(1, -1), OtherState(0, -2)),
    (OtherState(1, request=2), OtherState(0, request=1)),
    (WrongFeature(0, 2, "feature", 1), WrongFeature(1, 3, "feature", 2)),
    (WrongMatch("length", 1), WrongMatch("length", -2)),
    (
        Stride(StridePair(1, 4, "W", "A"), VerifyRow(0, 1), 6, 6),
        Stride(StridePair(3, 5, "", "A"), VerifyRow(1, 0), 2, 4, source=VerifyRow(0, -1, 2), how="lies"),
    ),
]
OTHER = [
    (Missing(), Different()),
    (OffBy(1), OffBy(-1)),
    (Resized(1), Resized(-1)),
    (TooEarly("round", 4), TooEarly("step", 4)),
    (TooEarly("round", 4), TooEarly("round", 4, in_part=True)),
    (StateSlotOf(0), StateSlotOf(0, 0)),
    (OtherState(1, -1), OtherState(1, 1)),
    (OtherState(1, -1), OtherState(1, request=0)),
    (OtherState(1, -1), OtherState(1, -1, earlier_round=True)),
    (ChoiceOf(1, 1), ChoiceOf(1, -1)),
    (WrongFeature(0, 2), WrongFeature(0, 2, "last")),
    (WrongMatch("place", 1), WrongMatch("place", -1)),
    (WrongMatch("lost"), WrongMatch("invented")),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=str)
def test_numbers_are_no_part_of_an_identity(one: Relation, other: Relation):
    assert one.general == other.general
    assert one.exact != other.exact
    assert not any(letter.isdigit() for letter in one.general)


@pytest.mark.parametrize(("one", "other"), OTHER, ids=str)
def test_what_tells_two_bugs_apart_is_part_of_an_identity(one: Relation, other: Relation):
    assert one.general != other.general


def test_a_relation_reads_as_words():
    assert (OffBy(-2).general, OffBy(-2).exact) == ("off by behind", "off by -2")
    assert len({kind().general for kind in get_args(PlainRelation)}) == len(get_args(PlainRelation))


def test_relations_come_back_from_json():
    relations = [
        *(one for pair in SAME for one in pair),
        RowElsewhere(TensorLocation("row", (0, 3)), (1, 0), Shifted(3, 2)),
    ]
    assert msgspec.json.decode(msgspec.json.encode(relations), type=list[Relation]) == relations
    assert msgspec.json.encode(OffBy(1)) == b'{"kind":"off_by","by":1}'
