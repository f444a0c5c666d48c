"""The fast pass is held to the slow definition: the same rounds of the same texts, right and with every mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from draftproof.properties.values.drafts import CheckpointDraft, Ngram, algorithm
from draftproof.properties.values.round_log import LoggedRound, LoggedText, Prompt
from draftproof.reference.audit.fast import FastPair, FastSimulator, load_fast
from draftproof.reference.audit.mistakes import Mistake, definition, mistakes
from draftproof.reference.audit.pair import AuditedPair, load_pair
from draftproof.reference.audit.play import Played
from draftproof.reference.audit.slow import SlowFollower, SlowSimulator
from tests.checkpoints import VOCAB, tiny_eagle3, tiny_glm4_moe, tiny_head, tiny_llama, tiny_qwen3

STEPS, BUDGET = 3, 9
PROMPTS = tuple(
    Prompt(prompt=tuple((5 * i + j * j + 1) % VOCAB for j in range(length)), max_tokens=BUDGET + i)
    for i, length in enumerate((7, 2, 11))
)


class Case(NamedTuple):
    target: Callable[[Path], Path]
    head: Callable[[Path, Path], Path] | None
    draft: CheckpointDraft | Ngram


CASES = {
    "eagle": Case(tiny_llama, lambda path, target: tiny_head(path, target, seed=3), CheckpointDraft()),
    "eagle3": Case(
        tiny_qwen3, lambda path, _: tiny_eagle3(path, "safeailab", seed=2), CheckpointDraft(algorithm="eagle3")
    ),
    "ngram": Case(tiny_llama, None, Ngram(max_n=2)),
}


class Both(NamedTuple):
    slow: AuditedPair
    fast: FastPair
    mistakes: tuple[Mistake, ...]


@pytest.fixture(scope="module", params=CASES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    case, folder = CASES[request.param], tmp_path_factory.mktemp("batched")
    path, draft = case.target(folder / "target"), case.draft
    if case.head is not None:
        assert isinstance(draft, CheckpointDraft)
        draft = CheckpointDraft(algorithm=draft.algorithm, path=str(case.head(folder / "head", path)))
    fast = load_fast(str(path), draft, torch.device("cpu"), torch.float64)
    assert fast is not None
    name = algorithm(draft)
    return Both(load_pair(str(path), draft), fast, (definition(name), *mistakes(name)))


def test_prompts_are_played_alike(both: Both):
    slow = SlowSimulator(both.slow, PROMPTS, STEPS, BUDGET)
    fast = FastSimulator(both.fast, PROMPTS, steps=STEPS, budget=BUDGET)
    for mistake in both.mistakes:
        assert fast.play(mistake) == slow.play(mistake), mistake.name


def test_logs_are_followed_alike(both: Both):
    """Rounds in which everything, something and nothing is accepted, so that every mistake leaves something behind."""
    slow = SlowSimulator(both.slow, PROMPTS, STEPS, BUDGET)
    log = [steered(text.prompt, text.tokens, at) for at, text in enumerate(slow._texts)]
    follower = SlowFollower(both.slow, log, STEPS)
    fast = FastSimulator(both.fast, log=log, steps=STEPS)
    assert fast.other_texts == follower.other_texts == 0
    played: dict[str, Sequence[Sequence[Played]]] = {}
    for mistake in both.mistakes:
        played[mistake.name] = fast.play(mistake)
        assert played[mistake.name] == follower.play(mistake), mistake.name
    assert len({str(one) for one in played.values()}) > len(played) / 2


def steered(prompt: int, tokens: tuple[int, ...], at: int) -> LoggedText:
    """Return a log of a text in which 3, 1, 0, 2, 3, .. of three drafts are right."""
    first, rounds = prompt + 1, list[LoggedRound]()
    while first + STEPS < len(tokens):
        right = (3, 1, 0, 2, 3)[(len(rounds) + at) % 5]
        drafts = tokens[first : first + right] + tuple(
            (token + 1) % VOCAB for token in tokens[first + right :][: 3 - right]
        )
        emitted = tokens[first : first + right + 1]
        rounds.append(LoggedRound(request=at, round=len(rounds) + 1, drafts=drafts, emitted=emitted))
        first += right + 1
    return LoggedText(tokens[:prompt], tokens[prompt : prompt + 1], tuple(rounds))


def test_other_tokens_than_the_targets_are_counted(both: Both):
    text = SlowSimulator(both.slow, PROMPTS[:1], STEPS, BUDGET)._texts[0]
    wrong = (text.tokens[-1] + 1) % VOCAB
    log = [LoggedText(text.tokens[: text.prompt], (*text.tokens[text.prompt : -1], wrong), ())]
    assert (
        SlowFollower(both.slow, log, STEPS).other_texts
        == FastSimulator(both.fast, log=log, steps=STEPS).other_texts
        == 1
    )


def test_what_it_cannot_run_is_left_to_the_slow_one(tmp_path: Path):
    other = tiny_glm4_moe(tmp_path / "glm", 1)
    assert load_fast(str(other), Ngram(max_n=2), torch.device("cpu")) is None
    assert load_fast(str(other), CheckpointDraft(algorithm="mtp", built_in=True), torch.device("cpu")) is None
