"""Faults of real-model code: which checkpoints they meet, and what they are told where they cannot."""

from pathlib import Path

import pytest

from draftproof.cli.app import run
from draftproof.faults import checkpoints
from draftproof.faults.catalogue import TINY, catalogue, read_fault
from draftproof.faults.checkpoints import FOLDERS, Checkpoints, tiny
from draftproof.faults.patching import PatchError
from draftproof.properties.formats.case import case_fault, read_case
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint
from tests.checkpoints import tiny_llama, tiny_qwen3

PROBES = ("engine/models/probe", "engine/models/base.py", "engine/models/config_fields.py")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stand in for the writer: note what it is asked for, and make the folder."""
    folders: list[Path] = []

    def write(folder: Path) -> None:
        folders.append(folder)
        folder.mkdir(parents=True)

    monkeypatch.setattr(checkpoints, "_write", write)
    return folders


def test_tiny_checkpoints_are_written_once(tmp_path: Path, written: list[Path]):
    first, second = (tiny("glm4-moe", draft, tmp_path) for draft in ("mtp", "dflash"))
    assert len(written) == 1
    assert first.models == second.models == (str(written[0] / "glm4-moe"),)
    assert (first.draft_model, second.draft_model) == ("", str(written[0] / "dflash"))


def test_without_transformers_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoints, "find_spec", lambda _name: None)
    with pytest.raises(CheckpointError, match=r"no transformers: .* pip install transformers"):
        tiny("llama", "eagle", tmp_path)


def test_models_take_turns(tmp_path: Path):
    paths = [tiny_llama(tmp_path / "llama"), tiny_qwen3(tmp_path / "qwen3")]
    made = Checkpoints(models=tuple(map(str, paths))).scenarios("eagle", 3, 3)
    models = [one.model.path for one in made if isinstance(one.model, Checkpoint)]
    assert models == [str(paths[0]), str(paths[1]), str(paths[0])]
    assert {one.draft for one in made} == {CheckpointDraft(algorithm="eagle", seed=3)}


def test_no_more_scenarios_than_a_checkpoint_allows(tmp_path: Path):
    path = str(tiny_llama(tmp_path / "llama"))
    assert len(Checkpoints(models=(path,), most=2).scenarios("ngram", 0, 30)) == 2


def test_a_draft_that_does_not_fit_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match="with draft mtp"):
        Checkpoints(models=(str(tiny_llama(tmp_path / "llama")),)).scenarios("mtp", 0, 1)


def test_every_tiny_target_and_draft_has_a_fault():
    faults = [file.fault for file in catalogue().values() if file.fault.model]
    assert {fault.model for fault in faults} >= set(TINY)
    assert {fault.draft for fault in faults} >= {*FOLDERS, "eagle", "mtp"}


def test_the_code_of_real_models_has_at_least_25_faults():
    paths = {file.fault.id: {hunk.path for hunk in file.hunks()} for file in catalogue().values() if file.fault.model}
    real = [name for name, of in paths.items() if any(path.startswith("engine/models/") for path in of)]
    assert len(real) >= 25
    assert not [name for name in real if all(path.startswith(PROBES) for path in paths[name])]


def test_a_fault_of_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path):
    path = tmp_path / "x.patch"
    path.write_text('+++\nmodel = "lama"\n+++\n')
    with pytest.raises(PatchError, match="invalid model 'lama': expected llama, llama-fp8, qwen3"):
        read_fault(path)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--draft-model", "."), "expected only together with --model"),
        (("--model", "nowhere"), "invalid --model 'nowhere': expected a directory with config.json"),
    ],
)
def test_options_that_do_not_fit_are_2_and_named(options: tuple[str, ...], named: str, capsys):
    assert run(["faults", "run", "--id", "model-rope-base-by-default", *options]) == 2
    assert named in capsys.readouterr().err


def test_a_fault_meets_the_users_checkpoint_and_leaves_a_case(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = str(tiny_qwen3(tmp_path / "qwen3", rms_norm_eps=3e-3))
    options = ["--model", path, "--seeds", "1", "--examples", "1"]
    assert run(["faults", "run", "--id", "model-norm-epsilon-by-default", *options]) == 0
    case = ".draftproof/cases/fault-model-norm-epsilon-by-default.json"
    assert f"replay     draftproof replay {case} --fault model-norm-epsilon-by-default\n" in capsys.readouterr().out
    assert (case_fault(Path(case)), read_case(case)[0].model.path) == ("model-norm-epsilon-by-default", path)
