"""What is read off a subject's trace for the reference to follow, channel by channel."""

from msgspec.structs import replace

from draftproof.properties.evidence.observed_run import ObservedBatches, ObservedRun, read_run
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import BatchRow, Datum
from draftproof.properties.values.scenario import Checkpoint, RoundPlan, Scenario
from draftproof.properties.values.trace import Key, Observation, Trace
from tests.properties.evidence import ABORTED, ADAPTIVE, STATIC, TREE

WITH_PROMPT = Limits(first_drafts="with prompt")
FREE = replace(
    STATIC, requests=tuple(replace(one, rounds=(RoundPlan(num_drafts=2, num_correct=-1),)) for one in STATIC.requests)
)
"""Nothing is forced."""


def read(scenario: Scenario, *told: tuple[str, Key, Datum], limits: Limits | None = None) -> ObservedRun:
    trace = Trace("subject", frozenset(name for name, _, _ in told), tuple(Observation(*one) for one in told))
    return read_run(scenario, trace, limits or Limits())


def test_of_a_subject_that_says_nothing_nothing_is_known() -> None:
    assert read(STATIC) == ObservedRun(texts={})


def test_drafts_are_those_that_were_verified_or_else_proposed() -> None:
    proposed, verified = ("propose.tokens", Key(0, 1), (1, 2)), ("round.drafts", Key(0, 1), (3, 4))
    assert read(FREE, proposed).drafts == {(0, 1): (1, 2)}
    assert read(FREE, proposed, verified).drafts == {(0, 1): (3, 4)}
    assert read(STATIC, proposed).drafts == {}, "what is forced was not proposed"
    assert read(STATIC, proposed, verified).drafts == {(0, 1): (3, 4)}


def test_only_who_declares_it_verifies_drafts_with_the_prompt() -> None:
    told = ("round.drafts", Key(0, 0), (1,)), ("round.drafts", Key(0, 1), (2,))
    assert read(STATIC, *told).drafts == {(0, 1): (2,)}
    assert read(STATIC, *told, limits=WITH_PROMPT).drafts == {(0, 0): (1,), (0, 1): (2,)}
    assert read(ADAPTIVE, *told, limits=WITH_PROMPT).batches.counts == {(0, 1): 1}, "no batch has them"


def test_parents_are_those_of_trees() -> None:
    told = ("round.drafts", Key(0, 1), (5, 6, 7)), ("round.parents", Key(0, 1), (0, 0, 1))
    assert read(TREE, *told).parents == {(0, 1): (0, 0, 1)}
    assert read(STATIC, *told).parents == {}


def test_every_token_has_the_drafts_in_its_place() -> None:
    """A chain has one for each, a tree the siblings below the row; behind the drafts there are none."""
    drafts = ("round.drafts", Key(0, 1), (5, 6, 7))
    first, emitted = ("accept.emitted", Key(0, 0), (4,)), ("accept.emitted", Key(0, 1), (5, 7, 1))
    chain = read(STATIC, drafts, first, emitted)
    assert chain.in_place == {0: ((), (5,), (6,), (7,))}
    assert chain.texts == {0: (4, 5, 7, 1)}
    tree = read(TREE, drafts, ("round.parents", Key(0, 1), (0, 0, 1)), first, emitted)
    assert tree.in_place == {0: ((), (5, 6), (7,), ())}
    astray = read(TREE, drafts, ("round.parents", Key(0, 1), (0, 0, 1)), ("accept.emitted", Key(0, 1), (9, 7)))
    assert astray.in_place == {0: ((5, 6), ())}


def test_batches_say_when_rounds_ran_and_with_how_many_drafts() -> None:
    rows = (
        ("round.rows", Key(0, 0, 0), BatchRow(0, 5, 0, 0, 1)),
        ("round.rows", Key(0, 1, 0), BatchRow(0, 3, 1, 4, 2)),
    )
    drafts = ("round.drafts", Key(0, 1), (1,)), ("round.drafts", Key(0, 2), (1, 2))
    assert read(STATIC, *rows, *drafts).batches == ObservedBatches(rows={(0, 1): (2, 3)})
    assert read(ADAPTIVE, *rows, *drafts).batches.counts == {(0, 1): 3, (0, 2): 2}


def test_rounds_that_ran_the_text_again_were_resumed() -> None:
    attempts = [("round.attempt", Key(0, number), count) for number, count in enumerate((0, 0, 1, 1, 2))]
    assert read(STATIC, *attempts).batches.resumed == {(0, 2), (0, 4)}


def test_rounds_that_ended_before_an_abort_are_counted() -> None:
    """Those of unknown steps all ended; who is not to be aborted is left out."""
    assert [one.abort_at for one in ABORTED.requests] == [4, 1, 1, None]
    emitted = [("accept.emitted", Key(0, number), (1,)) for number in range(4)]
    assert read(ABORTED, *emitted).batches.ended == {0: 4, 1: 0, 2: 0}
    rows = [("round.rows", Key(0, number, 0), BatchRow(0, 1, 1, 0, 2 * number)) for number in range(4)]
    assert read(ABORTED, *emitted, *rows).batches.ended == {0: 2, 1: 0, 2: 0}


def test_what_was_served_stored_and_told_is_handed_on() -> None:
    key = Key(0, 1, -1, 0, 3)
    entry, told = ("commit.kv", key, b"12345678"), ("accept.logprobs", Key(0, 1, row=0), (1, 2))
    real = replace(STATIC, model=Checkpoint(path="x", vocab=64))
    seen = read(real, ("round.cached", Key(0, 0), 4), entry, told)
    assert (seen.cached, seen.stored["commit.kv"], seen.logprobs) == (
        {(0, 0): 4},
        {key: b"12345678"},
        {Key(0, 1, row=0): (1, 2)},
    )


def test_a_run_may_have_the_batches_of_another() -> None:
    one = read(ADAPTIVE, ("round.drafts", Key(0, 1), (1,)))
    other = read(ADAPTIVE, ("round.drafts", Key(0, 1), (1, 2)))
    assert one.batched_as(other).batches == other.batches
    assert one.batched_as(other).drafts == one.drafts
