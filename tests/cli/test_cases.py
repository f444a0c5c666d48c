"""Cases of checkpoints: run from another folder, or with the checkpoint elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from draftproof import pytest_options
from draftproof.cli.app import run
from draftproof.properties.formats.case import Case, case_text, read_case
from draftproof.properties.values.located import folders
from draftproof.reference.solved import solved
from tests.checkpoints import tiny_llama
from tests.named import named
from tests.named.real import real


@pytest.fixture(scope="module")
def of_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Case]:
    """A folder with a checkpoint, and a case that names it relative to there."""
    folder = tmp_path_factory.mktemp("cases")
    tiny_llama(folder / "llama")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (scenario,) = real(Path("llama"), ("ngram_matches",), "ngram")
        assert folders(scenario) == {"--model": "llama"}
        return folder, Case(scenario=scenario, script=solved(scenario).script)


def written(of_checkpoint: tuple[Path, Case], path: Path, patch: pytest.MonkeyPatch) -> Path:
    """The case file, as it is written in the checkpoint's folder."""
    patch.chdir(of_checkpoint[0])
    path.write_text(case_text(of_checkpoint[1]))
    return path


def test_a_case_is_replayed_from_any_folder(of_checkpoint, tmp_path, monkeypatch):
    case = written(of_checkpoint, tmp_path / "case.json", monkeypatch)
    assert folders(read_case(case)[0]) == {"--model": str(of_checkpoint[0] / "llama")}
    monkeypatch.chdir(tmp_path)
    assert run(["replay", "case.json"]) in (0, 125)


def test_a_checkpoint_that_has_moved_is_named(of_checkpoint, tmp_path, monkeypatch, capsys):
    case = written(of_checkpoint, tmp_path / "case.json", monkeypatch)
    case.write_text(case.read_text().replace(str(of_checkpoint[0]), "/nowhere"))
    for command in (["replay"], ["explain"], ["lab", "bisect", "parts"]):
        assert run([*command, str(case)]) == 2
        told = f"error: {case}: there is no checkpoint at /nowhere/llama: expected its target there, or --model"
        assert capsys.readouterr().err == f"{told} with its folder\n"
    with pytest.raises(pytest.UsageError, match="expected its target there, or --draftproof-model with its folder"):
        pytest_options.check_case(str(case), "", "")
    shutil.copytree(of_checkpoint[0] / "llama", tmp_path / "moved")
    assert run(["replay", str(case), "--model", str(tmp_path / "moved")]) in (0, 125)
    assert f"--model {tmp_path / 'moved'}" in capsys.readouterr().out
    pytest_options.check_case(str(case), str(tmp_path / "moved"), "")


def test_a_folder_that_no_case_needs_is_refused(tmp_path, capsys):
    scenario = named("eagle_padded")
    case = tmp_path / "case.json"
    case.write_text(case_text(Case(scenario=scenario, script=solved(scenario).script)))
    assert run(["replay", str(case), "--model", str(tmp_path)]) == 2
    assert "expected none, as the case has no target in a folder" in capsys.readouterr().err
