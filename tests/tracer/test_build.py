"""`draftproof tracer build`: what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoConfig

from draftproof.cli.app import run
from draftproof.properties.lib.errors import CheckpointError, InputError
from draftproof.tracer.build import build
from draftproof.tracer.generate import generated
from draftproof.tracer.kernel import ROUNDING, kernel
from draftproof.tracer.margins import margins
from draftproof.tracer.oracle import continuation
from draftproof.tracer.program import BOS, read_program


def test_a_directory_keeps_its_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "new" / "tracer"
    assert run(["tracer", "build", "--arch", "llama", "--draft", "eagle", "--length", "64", "--out", str(out)]) == 0
    assert f"wrote {out}: llama, seed 0; margins at bfloat16: scores " in capsys.readouterr().out
    assert read_program(out) == generated(0, 64, draft="eagle")
    assert sum(path.stat().st_size for path in out.rglob("*")) < 1 << 24
    with pytest.raises(CheckpointError, match="expected the program of a tracer checkpoint"):
        read_program(tmp_path)


@pytest.mark.parametrize("draft", ["eagle", "eagle3", "standalone"])
def test_transformers_reads_the_configuration_of_a_draft(draft: str, tmp_path: Path):
    """As servers do, whatever architecture it names."""
    build(tmp_path / "tracer", "llama", draft, length=64)
    config = AutoConfig.from_pretrained(tmp_path / "tracer" / draft)
    assert config.hidden_size % config.num_attention_heads == 0


def test_seeds_give_different_functions():
    said = [tuple(continuation(generated(seed, 64), [BOS, 5], 8)) for seed in range(8)]
    assert len(set(said)) == 8


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--arch", "gpt2"], "invalid architecture 'gpt2': expected one of llama"),
        (["--draft", "medusa"], "invalid draft 'medusa': expected one of eagle"),
        (["--arch", "qwen3.5", "--draft", "standalone"], "invalid draft 'standalone': expected one of eagle, eagle3"),
        (["--dtype", "int8"], "invalid dtype 'int8': expected one of float32"),
        (["--out", "."], "expected an empty one"),
        (["--window", "70"], "invalid window 70: expected 0 for an architecture without windows"),
        (["--arch", "qwen3", "--window", "64"], "invalid window 64: expected 0, or more than 64"),
        (["--tied", "--draft", "eagle"], "invalid tied embeddings 'llama': expected llama or qwen3, without a head"),
    ],
)
def test_what_cannot_be_built_is_refused(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["tracer", "build", "--arch", "llama", "--out", str(tmp_path / "new"), *options]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_length_that_the_precision_cannot_carry_is_refused(dtype: str):
    program = generated(0, 4096)
    for one in margins(program, kernel(64, 1e6, 4096, dtype, spare=True), 4096, dtype):
        assert one.value >= one.least
    narrow = kernel(64, 1e4, 4096, dtype, spare=True)
    with pytest.raises(InputError, match=f"invalid length 4096: expected less at {dtype}: the margin of scores is "):
        margins(program, narrow, 4096, dtype)
