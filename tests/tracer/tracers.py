"""Tracer checkpoints for tests, prompts for them, and what transformers emits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from draftproof.tracer.build import build
from draftproof.tracer.oracle import BitRows, continuation
from draftproof.tracer.program import BOS, VOCABULARY, Program

_SIDE_BY_SIDE = 5


def built(folder: Path, architecture: str, draft: str | None = None, **options: int) -> tuple[Path, Program]:
    """Return the directory of a tracer, and its program."""
    directory = folder / f"{architecture}-{draft}"
    return directory, build(directory, architecture, draft, **{"length": 512, **options}).program


def texts(program: Program, count: int, longest: int, seed: int) -> list[list[int]]:
    """Return texts of up to `longest` tokens, as many of each magnitude: of chance, and the last of a tracer's own."""
    chance, ids = random.Random(seed), [token for token in range(VOCABULARY) if token != BOS]
    lengths = [longest, *(round(longest ** chance.random()) for _ in range(count - 1))]
    prompts = [[BOS, *chance.choices(ids, k=length - 1)] for length in lengths]
    return [[*prompt, *continuation(program, prompt, 12)] for prompt in prompts]


def wrong(directory: Path, dtype: str, program: Program, some: Sequence[list[int]]) -> list[tuple[int, int]]:
    """Return the prompts that transformers continues otherwise than the oracle, as (text, length).

    Every beginning of a text is a prompt. Texts of about one length run side by side: what is behind the end of one is
    looked at by nobody.
    """
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, dtype))
    numbers = sorted(range(len(some)), key=lambda number: len(some[number]))
    found = []
    for first in range(0, len(some), _SIDE_BY_SIDE):
        batch = numbers[first : first + _SIDE_BY_SIDE]
        rows = torch.nn.utils.rnn.pad_sequence([torch.tensor(some[number]) for number in batch], batch_first=True)
        with torch.no_grad():
            logits = model(rows).logits.float()
        for number, of_text in zip(batch, logits, strict=True):
            text, oracle = some[number], BitRows(program)
            oracle.extend(text)
            best = of_text[: len(text)].topk(2)
            clear = best.values[:, 0] - best.values[:, 1] > 31
            expected = torch.tensor([oracle.emitted(row) for row in range(len(text))])
            found += [(number, int(i) + 1) for i in (~clear | (best.indices[:, 0] != expected)).nonzero()]
    return found
