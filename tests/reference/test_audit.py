"""Played drafts: by definition they propose what the reference's drafts do, and every mistake changes something."""

from collections.abc import Callable, Iterator
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from draftproof.properties.formats.round_log import LoggedRound, LoggedText
from draftproof.properties.values.drafts import CheckpointDraft, Ngram, algorithm
from draftproof.properties.values.scenario import Checkpoint
from draftproof.reference.audit.mistakes import Mistake, definition, mistakes
from draftproof.reference.audit.others import LookupPlayer
from draftproof.reference.audit.pair import AuditedPair, load_pair
from draftproof.reference.audit.play import Played, Text, follow, play
from draftproof.reference.audit.rules import ChainRules, EntryRules, LookupRules
from draftproof.reference.checkpoints import load
from draftproof.reference.drafts.base import ReferenceDraft
from draftproof.reference.memo import Memo
from tests.checkpoints import VOCAB, tiny_dflash, tiny_eagle3, tiny_glm4_moe, tiny_head, tiny_llama, tiny_qwen3

PROMPT = (1, 2, 3, 4, 5, 2, 3)
STEPS, BUDGET = 3, 20


class Case(NamedTuple):
    target: Callable[[Path], Path]
    directory: Callable[[Path, Path], Path] | None
    draft: CheckpointDraft | Ngram


CASES = {
    "eagle": Case(tiny_llama, lambda path, target: tiny_head(path, target, seed=3), CheckpointDraft()),
    "eagle3": Case(
        tiny_qwen3, lambda path, _: tiny_eagle3(path, "safeailab", seed=2), CheckpointDraft(algorithm="eagle3")
    ),
    "mtp": Case(lambda path: tiny_glm4_moe(path, 1, mtp=3), None, CheckpointDraft(algorithm="mtp", built_in=True)),
    "mtp as eagle": Case(lambda path: tiny_glm4_moe(path, 1, mtp=3), None, CheckpointDraft(built_in=True)),
    "dflash": Case(tiny_llama, lambda path, _: tiny_dflash(path), CheckpointDraft(algorithm="dflash")),
    "standalone": Case(
        tiny_llama,
        lambda path, _: tiny_llama(path, seed=4, num_hidden_layers=2, hidden_size=24),
        CheckpointDraft(algorithm="standalone"),
    ),
    "ngram": Case(tiny_llama, None, Ngram(max_n=3)),
}


class Made(NamedTuple):
    """A pair as an audit reads it, the same draft as scenarios do, and a text."""

    pair: AuditedPair
    draft: ReferenceDraft
    text: Text
    target: Callable[[tuple[int, ...]], object]


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Made]:
    case, folder = CASES[request.param], tmp_path_factory.mktemp("audit")
    target, draft = case.target(folder / "target"), case.draft
    if case.directory is not None:
        assert isinstance(draft, CheckpointDraft)
        path = str(case.directory(folder / "draft", target))
        draft = CheckpointDraft(algorithm=draft.algorithm, path=path)
    pair = load_pair(str(target), draft)
    model, built = load(Checkpoint(path=str(target), vocab=VOCAB), draft, Memo())
    return request.param, Made(pair, built, pair.decode(PROMPT, BUDGET + STEPS + 1), model.forward)


def right(made: Made, name: str) -> Mistake:
    return definition(algorithm(CASES[name].draft))


def played(made: Made, mistake: Mistake) -> tuple[Played, ...]:
    return play(made.text, made.pair.player(made.text, mistake), mistake, STEPS, BUDGET)


def test_by_definition_it_proposes_what_the_draft_does(made: tuple[str, Made]):
    name, one = made
    for round_ in played(one, right(one, name)):
        tokens = one.text.tokens[: round_.context + 1]
        own = one.draft.propose(tokens, one.target(tokens[:-1]), STEPS).tokens  # type: ignore[arg-type]
        assert round_.drafts == own
        matches = [a == b for a, b in zip(own, one.text.tokens[round_.context + 1 :], strict=False)]
        assert round_.accepted == (matches.index(False) if False in matches else len(own))


def test_every_mistake_changes_what_is_proposed_somewhere(made: tuple[str, Made]):
    name, one = made
    expected = tuple(proposals(one, right(one, name)))
    # What another setting changes depends on the text: the test below has one for it.
    known = [wrong for wrong in mistakes(algorithm(CASES[name].draft)) if "--max-n" not in wrong.name]
    drafts = [wrong for wrong in known if wrong.accepts == "as defined"]
    # Each is played up to the first round that differs.
    same = {wrong.name for wrong in drafts if not wrong.late and all(map(eq, proposals(one, wrong), expected))}
    assert not same


@pytest.mark.parametrize(("longer", "draft"), [(-2, 10), (-1, 7), (0, 9), (1, 5)])
def test_another_longest_suffix_finds_another_place(longer: int, draft: int):
    tokens = (4, 1, 2, 3, 5, 0, 1, 2, 3, 9, 8, 2, 3, 7, 6, 3, 10, 4, 1, 2, 3)
    text = Text(1, len(tokens) - 1, tokens, cast(Any, None), ())
    player = LookupPlayer(Ngram(max_n=3, match="latest"), text, LookupRules(longer=longer))
    assert player.propose(len(tokens) - 1, 1) == (draft,)


def proposals(made: Made, mistake: Mistake) -> Iterator[tuple[int, ...]]:
    """Yield those of rounds in which all drafts, the first, or none are right, in turn; then, none in any round."""
    yield from proposed(made, mistake, (STEPS, 1, 0))
    yield from proposed(made, mistake, (0,))


def proposed(made: Made, mistake: Mistake, right: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    player, tokens = made.pair.player(made.text, mistake), made.text.tokens
    number, context = 0, len(PROMPT)
    while context < len(PROMPT) + BUDGET:
        yield player.propose(context, STEPS - mistake.fewer if not mistake.idle else 0)
        number += 1
        accepted = right[number % len(right)]
        drafts = tokens[context + 1 : context + 1 + STEPS]
        wrong = tuple((token + 1) % VOCAB for token in drafts[accepted:])
        player.verified(drafts[:accepted] + wrong, accepted)
        context += accepted + 1


def test_a_log_of_a_right_draft_is_followed_round_by_round(made: tuple[str, Made]):
    name, one = made
    rounds = played(one, right(one, name))
    text = one.text._replace(tokens=one.text.tokens[: rounds[-1].context + rounds[-1].accepted + 2])
    log = [
        LoggedRound(
            request=0,
            round=number,
            drafts=round_.drafts,
            emitted=one.text.tokens[round_.context + 1 : round_.context + round_.accepted + 2],
        )
        for number, round_ in enumerate(rounds, start=1)
    ]
    assert follow(text, one.pair.player(text, right(one, name)), right(one, name), as_text(log), STEPS) == rounds


def as_text(log: list[LoggedRound]) -> LoggedText:
    return LoggedText((), (), tuple(log))


def test_defaults_of_rules_are_the_definition():
    assert definition("eagle").rules == EntryRules()
    assert definition("mtp").rules == ChainRules()
    names = [one.name for one in mistakes("eagle")]
    assert len(names) == len(set(names)) > 10


def test_rounds_of_a_log_that_were_left_without_drafts_get_theirs(made: tuple[str, Made]):
    name, one = made
    text = one.text._replace(tokens=one.text.tokens[:-STEPS])
    emitted = [(token,) for token in text.tokens[text.context + 1 :]]
    log = [
        LoggedRound(request=0, round=number, drafts=(), emitted=tokens)
        for number, tokens in enumerate(emitted, start=1)
    ]
    *followed, last = follow(text, one.pair.player(text, right(one, name)), right(one, name), as_text(log), STEPS)
    own = one.pair.player(one.text, right(one, name))
    for round_ in followed:
        assert round_.drafts == own.propose(round_.context, STEPS)
        own.verified((), 0)
    assert last.drafts == ()
