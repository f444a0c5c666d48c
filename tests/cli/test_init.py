"""`draftproof init`: what it writes runs as it is, and is a subject once its rounds are filled in."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import draftproof
from draftproof.cli.app import run
from draftproof.reference.build import build
from draftproof.reference.decode import RequestLimits, verify
from draftproof.reference.drafts.base import vector
from draftproof.reference.memo import Memo
from draftproof.report.subject_file import SUBJECT_LEVELS
from draftproof.subject import Request, Scenario
from tests.checkpoints import tiny_llama
from tests.named.real import real


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[Scenario]:
    path = tiny_llama(tmp_path_factory.mktemp("init") / "llama")
    return list(real(path, ("ngram_matches", "ends"), "ngram"))


def filled_in(module: Any, level: str) -> Any:
    """The subject of a module with the rounds of plain lookup decoding, by the reference."""

    class Filled(module.MineAtHomeSubject):  # type: ignore[misc]
        def rounds(self, scenario: Scenario, request: Request, most: int, stop: tuple[int, ...]) -> Iterator[Any]:
            rounds = list(self.decoded(scenario, request, most, stop))
            if level == "text":
                yield module.Round(tuple(token for one in rounds for token in one["emitted"]))
                return
            for one in rounds:
                yield module.Round(**{name: value for name, value in one.items() if name in module.Round._fields})

        def decoded(self, scenario: Scenario, request: Request, most: int, stop: tuple[int, ...]) -> Iterator[Any]:
            (target, draft), limits = build(scenario, Memo()), RequestLimits(most, stop, scenario.memory.max_len)
            emitted, before = (), 0
            while not emitted or not limits.ended(emitted):
                tokens = request.prompt + emitted
                count = min(scenario.steps, most - len(emitted) - 1) if emitted else 0
                drafts = draft.propose(tokens, target.forward(tokens), count).tokens
                done = verify(target, tokens, drafts)
                new = limits.cut(emitted, done.emitted)
                emitted += new
                length = len(request.prompt + emitted) - 1
                places = [(layer, at) for layer in range(len(done.whole.kv)) for at in range(before, length)]
                entries = {place: vector(done.whole.kv[place[0]][place[1]]) for place in places}
                told = {"emitted": new, "correct_len": done.correct_len, "drafts": drafts}
                yield told | {"length": length, "entries": entries}
                before = length

    return Filled()


@pytest.mark.parametrize("level", SUBJECT_LEVELS)
def test_what_is_written_is_a_subject(
    level: str, scenarios: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert run(["init", "--engine", "Mine at home", "--draft", "ngram", "--level", level]) == 0
    spec = importlib.util.spec_from_file_location("mine_at_home_subject", tmp_path / "mine_at_home_subject.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(NotImplementedError, match="expected the rounds of Mine at home"):
        module.MineAtHomeSubject().rounds(scenarios[0], scenarios[0].requests[0], 4, ())
    report = draftproof.check(filled_in(module, level), scenarios)
    # So few scenarios do not have all that is asked for.
    assert report.verdict in (draftproof.Outcome.PASS, draftproof.Outcome.INCONCLUSIVE), report.findings
    assert report.level == {"text": "text", "rounds": "counters", "drafts": "host", "caches": "tensors"}[level]


def test_a_file_that_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("mine_subject.py").write_text("kept")
    assert run(["init", "--engine", "mine", "--draft", "ngram"]) == 2
    assert "expected another name, as mine_subject.py exists" in capsys.readouterr().err
    assert Path("mine_subject.py").read_text() == "kept"
    assert run(["init", "--engine", "!!", "--draft", "ngram"]) == 2
    assert "expected a name that begins with a letter" in capsys.readouterr().err
