"""Stock transformers emits what the oracle says, in every precision."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from draftproof.tracer.architectures import BACK_ENDS
from draftproof.tracer.oracle import continuation
from draftproof.tracer.program import BOS
from tests.tracer.tracers import built, texts, wrong

DTYPES = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("architecture", BACK_ENDS)
def test_tokens_are_the_oracles(architecture: str, tmp_path: Path):
    directory, program = built(tmp_path, architecture)
    some = texts(program, 8, 200, 1)
    assert {dtype: wrong(directory, dtype, program, some) for dtype in DTYPES} == {dtype: [] for dtype in DTYPES}
    assert len(wrong(directory, "float32", built(tmp_path / "other", architecture, seed=1)[1], some[:1])) > 200


@pytest.mark.parametrize(
    ("architecture", "options"), [("llama", {"tied": True}), ("qwen3", {"tied": True, "window": 70})]
)
def test_so_are_those_of_tied_embeddings_and_windows(architecture: str, options: dict[str, int], tmp_path: Path):
    directory, program = built(tmp_path, architecture, **options)
    some = texts(program, 6, 300, 1)
    assert {dtype: wrong(directory, dtype, program, some) for dtype in DTYPES} == {dtype: [] for dtype in DTYPES}


def test_a_window_that_is_a_token_short_shows(tmp_path: Path):
    directory, program = built(tmp_path, "qwen3", window=70)
    config = directory / "config.json"
    config.write_text(config.read_text().replace('"sliding_window": 70', '"sliding_window": 69'))
    assert len(wrong(directory, "float32", program, texts(program, 1, 300, 1))) > 100


@pytest.mark.parametrize("architecture", BACK_ENDS)
def test_tokens_of_thousands_of_long_prompts_are_the_oracles(architecture: str, tmp_path: Path):
    directory, program = built(tmp_path, architecture, seed=1, length=4096)
    for seed in range(3):
        some = texts(program, 2, 2000, seed)
        assert {dtype: wrong(directory, dtype, program, some) for dtype in DTYPES} == {dtype: [] for dtype in DTYPES}


@pytest.mark.parametrize("architecture", ["llama", "qwen3-next"])
def test_generate_reads_the_directory(architecture: str, tmp_path: Path):
    directory, program = built(tmp_path, architecture)
    tokenizer, model = AutoTokenizer.from_pretrained(directory), AutoModelForCausalLM.from_pretrained(directory)
    prompt = tokenizer("Größe", return_tensors="pt").input_ids
    assert prompt.tolist() == [[BOS, *"Größe".encode()]]
    emitted = model.generate(prompt, max_new_tokens=12)[0, prompt.shape[1] :].tolist()
    assert emitted == continuation(program, prompt[0].tolist(), 12)
