"""The tiny checkpoints that faults meet: read by the reference, with clear margins, and drafts that agree."""

from pathlib import Path

import pytest

from draftproof.faults.tiny_checkpoints import write_all
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint
from draftproof.reference.checkpoints import load
from draftproof.reference.choose import choose
from draftproof.reference.memo import Memo

PROMPTS = ((3, 9, 27, 41), (5, 9, 37, 41))
LAYERS = {
    "glm4-moe": 3,
    "deepseek-v3": 2,
    "deepseek-lite": 0,
    "qwen3-next": 1,
    "qwen3.5-moe": 1,
    "mimo": 2,
    "step3p5": 3,
    "qwen3": 0,
    "llama": 0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_all(path, 2, 3)
    heads = {"dflash", "eagle3", "eagle3-speculators", "eagle3-unlisted"}
    assert {entry.name for entry in path.iterdir()} == {*LAYERS, *heads, "llama-fp8"}
    return path


@pytest.mark.parametrize("name", LAYERS)
def test_every_draft_goes_with_every_target(folder: Path, name: str) -> None:
    drafts = {
        "standalone": CheckpointDraft(algorithm="standalone", path=str(folder / "llama")),
        "dflash": CheckpointDraft(algorithm="dflash", path=str(folder / "dflash")),
    }
    drafts |= {"mtp": CheckpointDraft(algorithm="mtp", built_in=True)} if LAYERS[name] else {}
    agreed, rounds, margins = dict.fromkeys(drafts, 0), 0, list[float]()
    if name == "llama":
        # Of its two layers a DFlash draft can take the first only.
        with pytest.raises(CheckpointError, match=r"target_layer_ids \[0, 2\] .*expected layers 0 .. 0"):
            load(Checkpoint(path=str(folder / name), vocab=67), drafts.pop("dflash"), Memo())
    for kind, draft in drafts.items():
        target, made = load(Checkpoint(path=str(folder / name), vocab=67), draft, Memo())
        for prompt in PROMPTS:
            tokens = prompt
            for _ in range(8):
                whole = target.forward(tokens)
                choice = choose(whole.logits[-1])
                margins.append(choice.margin)
                tokens, rounds = (*tokens, choice.token), rounds + 1
                expected = choose(target.forward(tokens).logits[-1]).token
                agreed[kind] += made.propose(tokens, whole, 1).tokens == (expected,)
    assert sorted(margins)[len(margins) // 2] > 0.3
    # Unrelated models would agree in one of 67.
    assert all(agreed[kind] >= 3 for kind in drafts if kind != "dflash")
    if LAYERS[name]:
        assert load(Checkpoint(path=str(folder / name), vocab=67), drafts["mtp"], Memo())[1].config() == (
            48,
            LAYERS[name],
        )
