"""The fast pass is held to the slow definition: the same rounds of the same texts, right and with every mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import torch

from draftproof.faults import tiny_checkpoints as tiny
from draftproof.properties.formats.round_log import LoggedRound, LoggedText, Prompt
from draftproof.properties.values.drafts import CheckpointDraft, Ngram, algorithm, is_free
from draftproof.reference.audit.fast import FastSimulator
from draftproof.reference.audit.fast_pair import FastPair, read_fast
from draftproof.reference.audit.mistakes import Mistake, definition, mistakes
from draftproof.reference.audit.pair import AuditedPair, load_pair
from draftproof.reference.audit.play import Played
from draftproof.reference.audit.slow import SlowFollower, SlowSimulator
from tests.checkpoints import (
    VOCAB,
    tiny_deepseek_v3,
    tiny_dflash,
    tiny_eagle3,
    tiny_glm4_moe,
    tiny_head,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_next,
)

STEPS, BUDGET = 3, 6
PROMPTS = tuple(
    Prompt(prompt=tuple((5 * i + j * j + 1) % VOCAB for j in range(length)), max_tokens=BUDGET + i)
    for i, length in enumerate((5, 1, 8))
)
"""One is shorter than the chain is long."""


class Case(NamedTuple):
    """A target, the directory of a draft, if it has one, the draft, and what is decoded."""

    target: Callable[[Path], Path]
    head: Callable[[Path, Path], Path] | None
    draft: CheckpointDraft | Ngram


def mimo(path: Path) -> Path:
    """Write a MiMo with two MTP layers."""
    alike = tiny.Alike(2)
    tiny.add_mtp_of_mimo(tiny.write(tiny.model("Qwen2ForCausalLM", tiny.TINY_SIZES), path, alike), alike, 2)
    return path


def step(path: Path) -> Path:
    """Write a Step-3.5 with three MTP layers."""
    tiny.write_step(path, tiny.Alike(2), 3)
    return path


MTP = CheckpointDraft(algorithm="mtp", built_in=True)
CASES = {
    "eagle": Case(tiny_llama, lambda path, target: tiny_head(path, target, seed=3), CheckpointDraft()),
    "eagle3": Case(
        tiny_qwen3, lambda path, _: tiny_eagle3(path, "safeailab", seed=2), CheckpointDraft(algorithm="eagle3")
    ),
    "ngram": Case(tiny_llama, None, Ngram(max_n=2)),
    "dflash": Case(tiny_llama, lambda path, _: tiny_dflash(path), CheckpointDraft(algorithm="dflash")),
    "standalone": Case(tiny_llama, lambda path, _: tiny_qwen3(path, seed=1), CheckpointDraft(algorithm="standalone")),
    "mtp of mimo": Case(mimo, None, MTP),
    "mtp of step3p5": Case(step, None, MTP),
    "mtp of deepseek_v3": Case(lambda path: tiny_deepseek_v3(path, mtp=3), None, MTP),
    "mtp of glm4_moe, unchained": Case(
        lambda path: tiny_glm4_moe(path, mtp=2), None, msgspec.structs.replace(MTP, chain=False)
    ),
    "eagle of a layer of mimo": Case(mimo, None, CheckpointDraft(built_in=True)),
}


class Both(NamedTuple):
    slow: AuditedPair
    fast: FastPair
    path: Path
    draft: CheckpointDraft | Ngram
    slowly: SlowSimulator
    mistakes: tuple[Mistake, ...]


@pytest.fixture(scope="module", params=CASES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    case, folder = CASES[request.param], tmp_path_factory.mktemp("batched")
    path, draft = case.target(folder / "target"), case.draft
    if case.head is not None:
        assert isinstance(draft, CheckpointDraft)
        draft = CheckpointDraft(algorithm=draft.algorithm, path=str(case.head(folder / "head", path)))
    read = read_fast(str(path), draft, torch.float64)
    assert read is not None
    fast = read.on(torch.device("cpu"))
    name, slow = algorithm(draft), load_pair(str(path), draft)
    slowly = SlowSimulator(slow, PROMPTS, STEPS, BUDGET)
    return Both(slow, fast, path, draft, slowly, (definition(name), *mistakes(name)))


def test_prompts_are_played_alike(both: Both):
    fast = FastSimulator(both.fast, PROMPTS, steps=STEPS, budget=BUDGET)
    for mistake in both.mistakes:
        assert fast.play(mistake) == both.slowly.play(mistake), mistake.name


def test_logs_are_followed_alike(both: Both):
    """Rounds in which everything, something and nothing is accepted, so that every mistake leaves something behind."""
    log = [steered(text.context, text.tokens, at) for at, text in enumerate(both.slowly._texts)]
    follower = SlowFollower(both.slow, log, STEPS)
    fast = FastSimulator(both.fast, log=log, steps=STEPS)
    assert fast.other_texts == follower.other_texts == 0
    played: dict[str, Sequence[Sequence[Played]]] = {}
    for mistake in both.mistakes:
        played[mistake.name] = fast.play(mistake)
        assert played[mistake.name] == follower.play(mistake), mistake.name
    assert len({str(one) for one in played.values()}) > len(played) / 2


def test_drafts_of_the_prompts_own_round_are_followed_alike(both: Both):
    if not is_free(both.draft):
        return
    log = [steered(text.context, text.tokens, at, with_prompt=True) for at, text in enumerate(both.slowly._texts)]
    assert all(one.rounds[0].round == 0 and len(one.rounds[0].emitted) > 1 for one in log[:2])
    follower, fast = SlowFollower(both.slow, log, STEPS), FastSimulator(both.fast, log=log, steps=STEPS)
    for mistake in both.mistakes:
        played = fast.play(mistake)
        assert played == follower.play(mistake), mistake.name
        assert [of_text[0].context for of_text in played] == [len(one.prompt) - 1 for one in log]


def steered(prompt: int, tokens: tuple[int, ...], at: int, *, with_prompt: bool = False) -> LoggedText:
    """Return a log of a text in which 3, 1, 0, 2, 3, .. of three drafts are right, from round 0 or 1 on."""
    rounds = [] if with_prompt else [LoggedRound(request=at, round=0, emitted=tokens[prompt : prompt + 1])]
    first = prompt + len(rounds)
    while first + STEPS < len(tokens):
        right = (3, 1, 0, 2, 3)[(len(rounds) - (not with_prompt) + at) % 5]
        drafts = tokens[first : first + right] + tuple(
            (token + 1) % VOCAB for token in tokens[first + right :][: 3 - right]
        )
        emitted = tokens[first : first + right + 1]
        rounds.append(LoggedRound(request=at, round=len(rounds), drafts=drafts, emitted=emitted))
        first += right + 1
    return LoggedText.of(tokens[:prompt], rounds)


@pytest.mark.gpu
def test_a_gpu_plays_them_alike(both: Both):
    read = read_fast(str(both.path), both.draft, torch.float64)
    assert read is not None
    on_gpu = read.on(torch.device("cuda"))
    here, there = (FastSimulator(one, PROMPTS, steps=STEPS, budget=BUDGET) for one in (both.fast, on_gpu))
    for mistake in both.mistakes:
        assert there.play(mistake) == here.play(mistake), mistake.name


def test_other_tokens_than_the_targets_are_counted(both: Both):
    text = both.slowly._texts[0]
    wrong = (text.tokens[-1] + 1) % VOCAB
    log = [LoggedText(text.tokens[: text.context], (*text.tokens[text.context : -1], wrong), ())]
    assert (
        SlowFollower(both.slow, log, STEPS).other_texts
        == FastSimulator(both.fast, log=log, steps=STEPS).other_texts
        == 1
    )


def test_what_it_cannot_run_is_left_to_the_slow_one(tmp_path: Path):
    hybrid, llama = tiny_qwen3_next(tmp_path / "hybrid"), tiny_llama(tmp_path / "llama")
    assert read_fast(str(hybrid), Ngram(max_n=2)) is None
    assert read_fast(str(hybrid), MTP) is None
    drafted_by_hybrid = CheckpointDraft(algorithm="standalone", path=str(hybrid))
    assert read_fast(str(llama), drafted_by_hybrid) is None
