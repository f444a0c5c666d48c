"""Every draft of real targets in the engine, in graphs: the tokens are those of plain greedy decoding."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.stages import GenerationRequest
from draftproof.engine.subject.checkpoints import load
from draftproof.engine.subject.pair import Pair
from draftproof.properties.values.drafts import CheckpointDraft, Ngram
from draftproof.properties.values.scenario import Checkpoint
from tests.checkpoints import tiny_deepseek_v3, tiny_dflash, tiny_glm4_moe, tiny_llama
from tests.engine.paged import paged, place
from tests.reference.witness import TOKENS

WRITERS: dict[str, Callable[..., Path]] = {"glm": tiny_glm4_moe, "deepseek": tiny_deepseek_v3}
DRAFTS: dict[str, Callable[[Path], CheckpointDraft | Ngram]] = {
    "eagle": lambda base: CheckpointDraft(seed=5),
    "first layer": lambda base: CheckpointDraft(built_in=True),
    "mtp": lambda base: CheckpointDraft(algorithm="mtp", built_in=True),
    "dflash": lambda base: CheckpointDraft(algorithm="dflash", path=str(tiny_dflash(base / "dflash"))),
    "standalone": lambda base: CheckpointDraft(algorithm="standalone", path=str(tiny_llama(base / "small", seed=9))),
    "itself": lambda base: CheckpointDraft(algorithm="standalone", path=str(base / "target")),
    "ngram": lambda base: Ngram(max_n=3),
}
PROMPTS = (TOKENS[:3], TOKENS[5:16], TOKENS[20:27])
NEW = 14


@pytest.fixture(scope="module", params=WRITERS)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    WRITERS[request.param](folder / "target", mtp=3)
    return folder


def model(base: Path) -> Checkpoint:
    return Checkpoint(path=str(base / "target"), vocab=53, dtype="float64")


@pytest.fixture(scope="module")
def greedy(base: Path) -> list[list[int]]:
    """What each prompt gets, one token at a time, each after a pass over everything before it."""
    target, found = load(model(base), DRAFTS["ngram"](base), torch.device("cpu")).target, []
    for prompt in PROMPTS:
        tokens = list(prompt)
        for _ in range(NEW):
            cache, count = paged(target.cache_shape, len(prompt) + NEW), len(tokens)
            where = place(cache, [1] * count, list(range(count)))
            with torch.no_grad():
                tokens.append(int(target.logits(target.forward(torch.tensor(tokens), where, cache))[-1].argmax()))
        found.append(tokens[len(prompt) :])
    return found


def serve(pair: Pair) -> tuple[list[list[int]], int]:
    """What every request got, and the number of decode rounds that it took in all."""
    config = EngineConfig(
        steps=3, page_size=4, pages=24, request_slots=3, max_len=32, max_batch=3, chunk=6, sizes=(1, 2, 4)
    )
    engine = Engine(pair.target, pair.draft, config, torch.device("cpu"))
    engine.capture(HostBackend())
    for number, prompt in enumerate(PROMPTS):
        engine.add(GenerationRequest(number, number, prompt, NEW, frozenset(), (3,)))
    found: list[list[int]] = [[] for _ in PROMPTS]
    rounds = 0
    while not engine.idle:
        for commit in engine.step():
            rounds += bool(found[commit.request])
            found[commit.request] += commit.emitted
    return found, rounds


@pytest.mark.parametrize("name", DRAFTS)
def test_tokens_are_those_of_plain_greedy_decoding(base: Path, greedy: list[list[int]], name: str) -> None:
    with torch.no_grad():
        found, rounds = serve(load(model(base), DRAFTS[name](base), torch.device("cpu")))
    assert found == greedy
    # The target as its own draft is always right: four tokens a round.
    fewest = sum(-(-(NEW - 1) // 4) for _ in PROMPTS)
    assert rounds == fewest if name == "itself" else rounds > fewest
