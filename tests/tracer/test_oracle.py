"""The oracle: what it says a token depends on changes it, and mistakes are views."""

from __future__ import annotations

import random

import numpy as np
import pytest

from draftproof.properties.lib.errors import InputError
from draftproof.tracer.depends import reads_of
from draftproof.tracer.generate import generated
from draftproof.tracer.oracle import (
    DRAFT_LAYER,
    SPAN,
    BitRows,
    Numbers,
    ReadOp,
    ReadView,
    continuation,
    handed,
    rounds,
)
from draftproof.tracer.program import BOS

PROMPT = [BOS, *random.Random(3).choices(range(256), k=60)]


@pytest.mark.parametrize(("mixers", "tied"), [("F", False), ("F", True), ("LF", False)])
def test_a_read_that_changes_a_token_is_one_that_it_depends_on(mixers: str, tied: bool):
    program = generated(0, 256, mixers, tied=tied)
    needed = reads_of(program, PROMPT)
    token, kinds = continuation(program, PROMPT, 1), set()
    chance = random.Random(1)
    for _ in range(300):
        number, at = chance.randrange(4), chance.randrange(len(PROMPT))
        layer = program.layers[number]
        kind, count = ("copy", len(layer.copies)) if layer.copies else ("slot", len(layer.memories))
        op = ReadOp(number, kind, chance.randrange(count))

        def entry(asked: ReadOp, rows: Numbers, wanted: Numbers, op: ReadOp = op, at: int = at) -> Numbers:
            return np.where((asked == op) & (rows == at), 7, wanted)

        if continuation(program, PROMPT, 1, ReadView(entry=entry)) != token:
            assert any((read.op, read.at) == (op, at) for read in needed)
            kinds.add(kind)
    assert {read.at for read in needed if read.op.layer == 3} == {len(PROMPT) - 1}
    assert kinds == ({"copy"} if mixers == "F" else {"copy", "slot"})


def test_tokens_one_by_one_are_those_at_once():
    for mixers, draft in (("F", "eagle"), ("LF", "mtp"), ("F", "standalone")):
        program = generated(1, 256, mixers, draft)
        whole, apart = BitRows(program), BitRows(program)
        whole.extend(PROMPT)
        for token in PROMPT:
            apart.extend([token])
            if len(apart.tokens[0]) > 1:
                apart.drafted(2)
        assert (whole.following(), whole.drafted(5)) == (apart.following(), apart.drafted(5))


MISTAKES = {
    "positions one ahead": ReadView(entry=lambda op, at, wanted: np.where(at >= len(PROMPT), wanted + 1, wanted)),
    "the last entry is missing": ReadView(entry=lambda op, at, wanted: np.where(wanted == len(PROMPT) - 1, 0, wanted)),
    "a layer is skipped": ReadView(runs=lambda layer: layer != 1),
    "a state goes on from two tokens before": ReadView(state=lambda op, at, before: before - (at == len(PROMPT))),
    "a window is shifted": ReadView(entry=lambda op, at, wanted: wanted - (op.kind in ("value", "write", "read"))),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_changes_what_is_said(mistake: str):
    program = generated(0, 256, "LF")
    assert continuation(program, PROMPT, 32, MISTAKES[mistake]) != continuation(program, PROMPT, 32)


def test_entries_of_another_request_are_read():
    program, other = generated(0, 256), [BOS, *reversed(PROMPT[1:])]
    at_last = len(PROMPT) - 1
    swapped = BitRows(program, ReadView(entry=lambda op, at, wanted: np.where(at == at_last, wanted + SPAN, wanted)))
    swapped.extend(other, 1)
    swapped.extend(PROMPT, 0)
    assert swapped.following(1) == continuation(program, other, 1)[0]
    mixed = continuation(program, [*other[:-1], PROMPT[-1]], 1)[0]
    assert swapped.following(0) == mixed != continuation(program, PROMPT, 1)[0]


OF_DRAFTS = {
    "positions of a chain are one ahead": ReadView(
        entry=lambda op, at, wanted: np.where((op.layer == DRAFT_LAYER) & (at > len(PROMPT)), wanted + 1, wanted)
    ),
    "ids are not shifted": ReadView(token=lambda at, wanted: at),
    "states are those of the row before": ReadView(hidden=lambda at, wanted: np.where(wanted > 0, wanted - 1, wanted)),
    "an entry is what the chain left there": ReadView(
        hidden=lambda at, wanted: np.where(at == len(PROMPT), handed(len(PROMPT) - 1), wanted)
    ),
}


@pytest.mark.parametrize("mistake", OF_DRAFTS)
def test_a_mistake_of_a_draft_changes_accept_lengths_and_no_token(mistake: str):
    program = generated(0, 256, draft="eagle")
    right, found = (rounds(program, PROMPT, 12, 5, view) for view in (None, OF_DRAFTS[mistake]))
    assert [one.accepted for one in right] != [one.accepted for one in found]
    tokens, others = ([token for one in some for token in one.emitted] for some in (right, found))
    assert all(a == b for a, b in zip(tokens, others, strict=False))


def test_other_ids_are_refused():
    program = generated(0, 64)
    for tokens in ([5], [BOS, BOS], [BOS, 320], [BOS, -1]):
        with pytest.raises(InputError, match="invalid id"):
            continuation(program, tokens, 1)
