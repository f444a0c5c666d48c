"""The vLLM adapter on a vLLM: a few scenarios of n-gram and EAGLE, and a mistake that must be found.

DRAFTPROOF_VLLM_PYTHON=vllm-env/bin/python pytest tests/subjects/test_vllm.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftproof.faults.engine_checkpoints import write_all
from draftproof.harness.checkpoint_scenarios import one_draft
from draftproof.harness.lockstep import evidence
from draftproof.harness.remote import RemoteSubject
from draftproof.properties.judge import judge
from draftproof.properties.values.subject_choice import SubjectChoice
from tests.named.real import real

PYTHON = os.environ.get("DRAFTPROOF_VLLM_PYTHON", "")
OTHER = Path(__file__).with_name("other")
pytestmark = pytest.mark.skipif(
    not PYTHON, reason="needs a Python with vLLM: name it in DRAFTPROOF_VLLM_PYTHON (docs/vllm.md)"
)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines")
    write_all(folder, 2)
    return folder


def made(name: str, **settings: str) -> Iterator[RemoteSubject]:
    return closing(RemoteSubject(SubjectChoice(name=name, python=PYTHON, settings=settings), search=str(OTHER)))


def first_of(subject: RemoteSubject, engines: Path, draft: str, *, cut: bool = False) -> list[str]:
    """Return the contract that failed first in each of three scenarios, where prompts are `cut` or not."""
    head = engines / "eagle-llama" if draft == "eagle" else None
    names = ("eagle_padded", "five_in_graphs", "logprobs")
    scenarios = real(engines / "llama", names, one_draft(engines / "llama", draft, head, 0), subject.limits)
    whole = [one if cut else replace(one, schedule=replace(one.schedule, chunk=64)) for one in scenarios]
    judged = [judge(evidence(subject, one)) for one in whole]
    return [one.first.contract for one in judged if one.first is not None]


@pytest.mark.parametrize("draft", ["ngram", "eagle"])
def test_vllm_agrees_with_the_reference(draft, engines):
    with made("draftproof.subjects.vllm:VllmSubject") as subject:
        assert first_of(subject, engines, draft) == []


def test_a_mistake_in_vllm_is_found(engines):
    with made("mistaken_vllm:Mistaken", mistake="ids-not-shifted") as subject:
        assert "extend.ids" in first_of(subject, engines, "eagle")


def test_a_known_defect_is_found_and_is_all_that_is(engines):
    """At the end of a chunk (docs/found.md)."""
    with made("draftproof.subjects.vllm:VllmSubject") as subject:
        assert "extend.ids" in first_of(subject, engines, "eagle", cut=True)
    with made("mended_vllm:Mended", without="chunk-end") as subject:
        assert first_of(subject, engines, "eagle", cut=True) == []


def test_the_release_has_every_hook():
    with made("draftproof.subjects.vllm:VllmSubject") as subject:
        assert all(hook.found for hook in subject.hooks())
