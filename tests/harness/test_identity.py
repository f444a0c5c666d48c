"""When two failures are the same one."""

import pytest
from msgspec.structs import replace

from draftproof.harness.identity import Identity, Level

ONE = Identity(contract="draft.positions", channel="draft.step.positions", phase="draft", relation="#", exact="1 ahead")
HANG = Identity(contract="hang", channel="deadline", phase="verify")


@pytest.mark.parametrize(
    ("field", "same_at"),
    [
        ("contract", ()),
        ("channel", ("contract",)),
        ("phase", ("contract", "channel", "exact")),
        ("relation", ("contract", "channel", "exact")),
        ("exact", ("contract", "channel", "relation")),
    ],
)
def test_each_level_compares_its_fields(field: str, same_at: tuple[Level, ...]):
    other = replace(ONE, **{field: "another"})
    levels: tuple[Level, ...] = ("contract", "channel", "relation", "exact")
    assert tuple(level for level in levels if ONE.is_same(other, level)) == same_at
    assert all(ONE.is_same(ONE, level) and not ONE.is_same(None, level) for level in levels)


def test_hangs_are_alike_but_for_campaigns():
    other = replace(HANG, channel="", phase="draft")
    assert HANG.is_same(other, "channel")
    assert not HANG.is_same(other, "relation")


def test_crashes_are_alike_but_for_the_numbers_of_their_message():
    one = Identity(contract="crash", channel="RuntimeError", phase="verify", exact="shape '[6, 1]' for size 1536")
    assert one.is_same(replace(one, exact="shape '[12, 1]' for size 40"), "exact")
    assert not one.is_same(replace(one, exact="shape '[12, 1]' of size 40"), "exact")
    assert not ONE.is_same(replace(ONE, exact="2 ahead"), "exact")


def test_labels_and_slugs():
    assert ONE.label == "draft.positions draft.step.positions 1 ahead"
    crash = Identity(contract="crash", channel="IndexError", exact="IndexError: page 9")
    assert crash.label == "crash IndexError: page 9"
    assert ONE.slug.startswith("draft-positions-draft-step-positions-")
    assert ONE.slug != replace(ONE, phase="verify").slug
    assert ONE.slug == replace(ONE, exact="2 ahead").slug
