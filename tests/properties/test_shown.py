"""What of a run nobody saw is told, and what must have been seen is demanded."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from draftproof.properties.coverage.counts import counts
from draftproof.properties.coverage.shown import (
    CHANNELS_THAT_SHOW_DRAFTS,
    ObservationGaps,
    drafts_seen,
    observation_gaps,
    shown_in_part,
)
from draftproof.properties.values.observed import BatchRow
from draftproof.properties.values.trace import Key, Observation, Trace
from tests.properties.evidence import evidence

TEXT = frozenset({"accept.emitted"})
NO_DRAFT = "no draft was seen, so nothing is said of drafting"


FIRST = Key(0, 1)


def trace(channel: str, value: object, key: Key = FIRST) -> Trace:
    return Trace("some", frozenset({channel}), (Observation(channel, key, value),))  # type: ignore[arg-type]


SHOWN = {
    "round.drafts": lambda count: trace("round.drafts", (7,) * count),
    "propose.tokens": lambda count: trace("propose.tokens", (7,) * count),
    "accept.correct_len": lambda count: trace("accept.correct_len", count),
    "accept.index": lambda count: trace("accept.index", tuple(range(count + 1))),
    "total.rounds": lambda count: trace("total.rounds", count, Key(-1, 0)),
    "total.drafts": lambda count: trace("total.drafts", count, Key(-1, 0)),
    "total.accepted": lambda count: trace("total.accepted", count, Key(-1, 0)),
    "round.rows": lambda count: trace("round.rows", BatchRow(0, count, 1, 0, 3), Key(0, 1, step=0)),
    "verify.ids": lambda count: trace("verify.ids", 7, Key(0, 1, row=count)),
}


def test_every_channel_of_drafts_is_tried() -> None:
    assert set(SHOWN) == CHANNELS_THAT_SHOW_DRAFTS


@pytest.mark.parametrize("channel", sorted(SHOWN))
def test_a_draft_is_seen_on_each_of_its_channels(channel: str) -> None:
    of: Callable[[int], Trace] = SHOWN[channel]
    assert drafts_seen(of(1)) == 1
    assert not drafts_seen(of(0))


def test_what_is_not_declared_shows_no_draft() -> None:
    assert not drafts_seen(replace(SHOWN["round.drafts"](2), channels=TEXT))


def test_the_text_shows_no_draft_and_a_prompt_has_none() -> None:
    assert not drafts_seen(trace("accept.emitted", (1, 2, 3)))
    assert not drafts_seen(trace("round.rows", BatchRow(0, 5, 0, 0, 0), Key(0, 0, step=0)))
    assert not drafts_seen(trace("verify.ids", 7, Key(0, 0, row=4)))


def test_a_run_counts_what_was_seen_of_it() -> None:
    of = evidence()
    whole, silent = counts(of), counts(replace(of, subject=Trace("some", frozenset(), ())))
    assert (whole["scenarios_shown"], whole["texts_shown"]) == (1, 1)
    assert whole["drafts_seen"] == sum(map(len, of.reference.channel("round.drafts").values()))  # type: ignore[arg-type]
    assert not any(silent[name] for name in ("scenarios_shown", "texts_shown", "drafts_seen"))


def seen(scenarios: int, shown: int, texts: int, drafts: int) -> dict[str, int]:
    return {"scenarios": scenarios, "scenarios_shown": shown, "texts_shown": texts, "drafts_seen": drafts}


@pytest.mark.parametrize(
    ("counted", "channels", "missing", "told"),
    [
        (seen(12, 12, 12, 5), CHANNELS_THAT_SHOW_DRAFTS | TEXT, (), ()),
        (seen(12, 12, 0, 5), CHANNELS_THAT_SHOW_DRAFTS, (), ()),
        (seen(12, 12, 12, 0), TEXT, (), (NO_DRAFT,)),
        (seen(12, 12, 12, 0), TEXT | {"round.drafts"}, ("drafts_seen >= 1",), (NO_DRAFT,)),
        (
            seen(12, 9, 9, 5),
            CHANNELS_THAT_SHOW_DRAFTS,
            ("scenarios_shown >= 12",),
            ("3 of 12 scenarios showed nothing",),
        ),
        (
            seen(12, 12, 9, 5),
            CHANNELS_THAT_SHOW_DRAFTS,
            ("texts_shown >= 12",),
            ("3 of 12 scenarios showed no text, and others did",),
        ),
        (seen(0, 0, 0, 0), TEXT, (), ()),
    ],
)
def test_what_was_not_seen_is_told_and_forbids_a_pass_unless_nobody_said_it_shows(
    counted: dict[str, int], channels: frozenset[str], missing: tuple[str, ...], told: tuple[str, ...]
) -> None:
    assert observation_gaps(counted, channels) == ObservationGaps(missing, told)


def test_channels_that_come_and_go_are_told() -> None:
    every, text = frozenset({"verify.ids", "verify.choice", "accept.emitted"}), frozenset({"accept.emitted"})
    told = ("verify.choice, verify.ids shown in 1 of 2 scenarios only",)
    assert shown_in_part([(every, every), (every, text)]) == told
    assert shown_in_part([(every, every), (text, text)]) == (), "the other has none of them"
    assert shown_in_part([(every, text), (every, text)]) == ()
    assert shown_in_part([(every, every | {"pool.owners"}), (every, every)]) == ()
