"""`draftproof lab kernels faults`: mistakes put into the kernels of a wheel made by hand; what a kernel misses."""

import json
from pathlib import Path

import pytest

from draftproof.cli.app import run
from draftproof.harness.bound_kernels import BOUND_PACKAGES, found
from draftproof.properties.formats.kernel_fault import KERNEL_FAULT_KINDS
from draftproof.subjects.kernels.faults import faults_of

EAGLE = """
import torch
import triton
import triton.language as tl
from absent_package import settings

@triton.jit
def fill_bonus_tokens(tokens, lens, bonus, accept_stride: tl.constexpr):
    pid = tl.program_id(0)
    accept_len = tl.load(lens + pid)
    bonus_token_idx = accept_stride * pid + accept_len - 1
    accept_tokens = tokens
    bonus_token = tl.load(accept_tokens + bonus_token_idx)
    tl.store(bonus + pid, bonus_token)

def prepare_draft_extend_inputs(accept_lens, predict, width):
    shift = 1 if settings.late else 0
    rows = torch.arange(len(accept_lens)) * width
    return accept_lens - 1, rows + accept_lens - 1 + shift, predict.long()
"""


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Path:
    """Return the folder of an unpacked wheel with a kernel, and a function that asks a package that is not there."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    folder = tmp_path / "sglang-0.0.1"
    place = folder / "sglang" / "srt" / "speculative" / "triton_ops"
    place.mkdir(parents=True)
    for above in (place, *place.parents[:3]):
        (above / "__init__.py").touch()
    (place / "eagle.py").write_text(EAGLE)
    (folder / "sglang-0.0.1.dist-info").mkdir()
    return folder


def reported(tmp_path: Path, *words: str) -> tuple[int, dict]:
    """Return the exit code, and what is said of the one release."""
    file = tmp_path / "report.json"
    code = run(["lab", "kernels", *words, "--examples", "8", "--workers", "1", "--json", str(file)])
    (release,) = json.loads(file.read_text())["releases"]
    return code, release


def test_faults_are_found_or_told_apart(wheel, tmp_path, capsys):
    words = ("faults", "--impl", "sglang:fill_bonus_tokens", "--wheel", str(wheel))
    code, release = reported(tmp_path, *words)
    assert (code, [one["verdict"] for one in release["clean"]]) == (0, ["PASS"])
    assert [one["kind"] for one in release["faults"] if one["found"]] == ["off by one", "stride", "index"]
    assert "3 of 3" in capsys.readouterr().out
    text = wheel / "sglang" / "srt" / "speculative" / "triton_ops" / "eagle.py"
    text.write_text(EAGLE.replace("accept_len - 1", "-1 + accept_len"))
    code, release = reported(tmp_path, *words)
    assert (code, [one["verdict"] for one in release["faults"]]) == (125, ["ERROR", "ERROR", "FAIL"])
    assert "expected once in fill_bonus_tokens of sglang.srt" in release["faults"][0]["reason"]


def test_a_kernel_that_asks_what_is_not_there_never_passes(wheel, tmp_path, capsys):
    code, release = reported(tmp_path, "check", "--impl", "sglang:prepare_draft_extend_inputs", "--wheel", str(wheel))
    (kernel,) = release["kernels"]
    assert (code, kernel["verdict"], kernel["stubs"]) == (125, "INCONCLUSIVE", ["absent_package.settings.late"])
    assert kernel["lacks"] == {"absent_package.settings": "absent_package is not installed here"}
    assert "has a stub for absent_package.settings: absent_package is not installed" in capsys.readouterr().out


@pytest.mark.parametrize("package", BOUND_PACKAGES)
def test_each_interpreted_kernel_has_three_faults_of_known_kinds(package):
    bindings, table = found(package), faults_of(package)
    assert {one.name for one in bindings if one.interpreted} == table.keys()
    for faults in table.values():
        assert len(faults) >= 3
        assert {fault.kind for fault in faults} <= {*KERNEL_FAULT_KINDS}
        assert all(fault.old != fault.new for fault in faults)


def test_kernels_without_faults_are_told(capsys):
    assert run(["lab", "kernels", "faults", "--impl", "fla:chunk_gated_delta_rule"]) == 2
    assert "expected kernels that faults are listed for" in capsys.readouterr().err
