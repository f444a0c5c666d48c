"""Tracers in `check --model`: their prompts begin as texts do, and then every choice is clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof import judge, run
from draftproof.engine.subject import EngineSubject
from draftproof.harness.checkpoint_scenarios import RealTarget, one_draft
from draftproof.tracer.program import BOS
from tests.named import named
from tests.tracer.tracers import built


@pytest.mark.parametrize(
    ("architecture", "draft", "name"), [("llama", "eagle", "logprobs"), ("qwen3-next", "mtp", "eagle_padded")]
)
def test_scenarios_of_a_tracer_pass_and_no_choice_is_close(architecture: str, draft: str, name: str, tmp_path: Path):
    directory, _ = built(tmp_path, architecture, draft)
    own = one_draft(directory, "eagle", directory / draft if draft == "eagle" else None, 0, built_in=draft == "mtp")
    made = RealTarget(directory, [own]).exchanged(named(name), 0)
    assert all(one.prompt[0] == BOS and BOS not in one.prompt[1:] for one in made.requests)
    evidence = run(EngineSubject(), made)
    assert judge(evidence).first is None
    assert not evidence.ties
    assert not evidence.tied_choices
