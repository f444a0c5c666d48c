"""The example that trains a pair runs, and what it writes is read by the reference and by the engine."""

import json
import sys
from pathlib import Path

import torch

from draftproof.engine.subject.checkpoints import load as load_for_engine
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint
from draftproof.reference.checkpoints import load
from draftproof.reference.memo import Memo
from tests.warm import Warm

FILE = Path(__file__).resolve().parent.parent / "examples/train_tiny.py"


def test_it_writes_a_pair_that_loads(warm: Warm, tmp_path: Path):
    steps = ["--target-steps", "2", "--head-steps", "2", "--prompts", "3"]
    command = [sys.executable, "-P", str(FILE), str(tmp_path), *steps]
    ran = warm.run(command)
    assert ran.returncode == 0, ran.stderr
    started, _, told = ran.stdout.splitlines()
    assert started == "training the target: 2 steps"
    assert told.startswith(f"wrote {tmp_path}. Next: draftproof audit --draft eagle --model {tmp_path}/target")
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert len(prompts) == 3
    model, draft = Checkpoint(path=str(tmp_path / "target"), vocab=64), CheckpointDraft(path=str(tmp_path / "head"))
    target, head = load(model, draft, Memo())
    tokens = tuple(prompts[0])
    assert len(head.propose(tokens, target.forward(tokens[:-1]), 4).tokens) == 4
    assert load_for_engine(model, draft, torch.device("cpu")).draft.kind == "eagle"
    config = json.loads((tmp_path / "head/config.json").read_text())
    assert (config["num_hidden_layers"], config["head_dim"]) == (1, 32)
