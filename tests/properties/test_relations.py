"""Relations as data: what makes two failures the same one, and their JSON."""

from typing import get_args

import msgspec
import pytest

from draftproof.properties.values import relations as rel

SAME = [
    (rel.OffBy(1), rel.OffBy(7)),
    (rel.Resized(1), rel.Resized(2)),
    (rel.Stale("round", 1), rel.Stale("step", 3)),
    (rel.Stale("round", 1), rel.Stale("round", 1, in_part=True)),
    (rel.TooEarly("round", 4), rel.TooEarly("round", 5)),
    (rel.OtherRow(request=1), rel.OtherRow(row=2)),
    (rel.StateSlotOf(0, 1), rel.StateSlotOf(2, 3)),
    (rel.OtherState(1, -1), rel.OtherState(0, -2)),
    (rel.OtherState(1, request=2), rel.OtherState(0, request=1)),
    (rel.WrongFeature(0, 2, "feature", 1), rel.WrongFeature(1, 3, "feature", 2)),
    (rel.WrongMatch("length", 1), rel.WrongMatch("length", -2)),
    (
        rel.Stride(rel.StridePair(1, 4, "W", "A"), rel.VerifyRow(0, 1), 6, 6),
        rel.Stride(
            rel.StridePair(3, 5, "", "A"), rel.VerifyRow(1, 0), 2, 4, source=rel.VerifyRow(0, -1, 2), how="lies"
        ),
    ),
]
OTHER = [
    (rel.Missing(), rel.Different()),
    (rel.OffBy(1), rel.OffBy(-1)),
    (rel.Resized(1), rel.Resized(-1)),
    (rel.TooEarly("round", 4), rel.TooEarly("step", 4)),
    (rel.TooEarly("round", 4), rel.TooEarly("round", 4, in_part=True)),
    (rel.StateSlotOf(0), rel.StateSlotOf(0, 0)),
    (rel.OtherState(1, -1), rel.OtherState(1, 1)),
    (rel.OtherState(1, -1), rel.OtherState(1, request=0)),
    (rel.OtherState(1, -1), rel.OtherState(1, -1, earlier_round=True)),
    (rel.ChoiceOf(1, 1), rel.ChoiceOf(1, -1)),
    (rel.WrongFeature(0, 2), rel.WrongFeature(0, 2, "last")),
    (rel.WrongMatch("place", 1), rel.WrongMatch("place", -1)),
    (rel.WrongMatch("lost"), rel.WrongMatch("invented")),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=str)
def test_numbers_are_no_part_of_an_identity(one: rel.Relation, other: rel.Relation):
    assert one.general == other.general
    assert one.exact != other.exact
    assert not any(letter.isdigit() for letter in one.general)


@pytest.mark.parametrize(("one", "other"), OTHER, ids=str)
def test_what_tells_two_bugs_apart_is_part_of_an_identity(one: rel.Relation, other: rel.Relation):
    assert one.general != other.general


def test_a_relation_reads_as_words():
    assert (rel.OffBy(-2).general, rel.OffBy(-2).exact) == ("off by behind", "off by -2")
    assert len({kind().general for kind in get_args(rel.PlainRelation)}) == len(get_args(rel.PlainRelation))


def test_relations_come_back_from_json():
    relations = [
        *(one for pair in SAME for one in pair),
        rel.RowElsewhere(rel.TensorLocation("row", (0, 3)), (1, 0), rel.Shifted(3, 2)),
    ]
    assert msgspec.json.decode(msgspec.json.encode(relations), type=list[rel.Relation]) == relations
    assert msgspec.json.encode(rel.OffBy(1)) == b'{"kind":"off_by","by":1}'
