"""The engine and the reference on tracers with a draft: every round is the oracle's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.stages import GenerationRequest
from draftproof.engine.subject.checkpoints import load
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.registry import load_target
from draftproof.tracer.architectures import BACK_ENDS
from draftproof.tracer.oracle import BitRows, continuation, rounds
from draftproof.tracer.program import BOS, VOCABULARY
from tests.tracer.tracers import built

STEPS, NEW = 5, 24
PROMPTS = [[BOS, *range(1, count)] for count in (2, 9, 40)]
ONE_EACH = {
    "llama": "eagle",
    "qwen3": "eagle3",
    "qwen3-next": "mtp",
    "qwen3.5": "mtp",
    "glm4-moe": "standalone",
    "deepseek-v3": "mtp",
}
PAIRS = [(name, draft) for name, back in BACK_ENDS.items() for draft in back.drafts if draft != ONE_EACH[name]]


def drafted(directory: Path, draft: str) -> CheckpointDraft:
    if draft == "mtp":
        return CheckpointDraft(built_in=True)
    return CheckpointDraft(algorithm=draft, path=str(directory / draft))


@pytest.mark.parametrize(("architecture", "draft"), ONE_EACH.items())
def test_rounds_of_the_engine_are_the_oracles(architecture: str, draft: str, tmp_path: Path):
    check_rounds(architecture, draft, tmp_path)


@pytest.mark.parametrize(("architecture", "draft"), PAIRS)
def test_so_they_are_of_every_pair(architecture: str, draft: str, tmp_path: Path):
    check_rounds(architecture, draft, tmp_path)


def check_rounds(architecture: str, draft: str, tmp_path: Path) -> None:
    """Tokens and accept lengths: a round emits what it accepts and one more, so that a wrong draft shows."""
    directory, program = built(tmp_path, architecture, draft)
    model = Checkpoint(path=str(directory), vocab=VOCABULARY, dtype="bfloat16")
    found: list[list[list[int]]] = [[] for _ in PROMPTS]
    with torch.no_grad():
        pair = load(model, drafted(directory, draft), torch.device("cpu"))
        config = EngineConfig(
            steps=STEPS, page_size=4, pages=90, request_slots=3, max_len=96, max_batch=2, chunk=16, sizes=(1, 2)
        )
        engine = Engine(pair.target, pair.draft, config, torch.device("cpu"))
        engine.capture(HostBackend())
        for number, prompt in enumerate(PROMPTS):
            engine.add(GenerationRequest(number, number, tuple(prompt), NEW, frozenset(), (STEPS,)))
        while not engine.idle:
            for commit in engine.step():
                found[commit.request].append(list(commit.emitted))
    accepted: Counter[int] = Counter()
    for prompt, (first, *rest) in zip(PROMPTS, found, strict=True):
        expected = rounds(program, prompt, len(rest), STEPS)
        # The last round is cut where the request ends.
        assert rest[:-1] == [one.emitted for one in expected[:-1]]
        assert rest[-1] == expected[-1].emitted[: len(rest[-1])]
        assert first == continuation(program, prompt, 1)
        accepted.update(one.accepted for one in expected)
    assert len(accepted) >= 4


@pytest.mark.parametrize("architecture", BACK_ENDS)
def test_the_reference_says_what_the_oracle_says(architecture: str, tmp_path: Path):
    directory, program = built(tmp_path, architecture, "eagle")
    target = load_target(directory)
    tokens = [*PROMPTS[-1], *continuation(program, PROMPTS[-1], NEW)]
    passed = target.forward(tokens)
    assert passed.logits[len(PROMPTS[-1]) - 1 : -1].argmax(-1).tolist() == tokens[len(PROMPTS[-1]) :]
    rows, expected = BitRows(program), []
    for count in range(2, len(tokens) + 1):
        rows.extend(tokens[len(rows.tokens.get(0, ())) : count])
        expected += rows.drafted(1)
    head = ReferenceEagleHead.load(target, directory / "eagle")
    assert head.forward(tokens[1:], passed.hidden[:-1]).logits.argmax(-1).tolist() == expected
