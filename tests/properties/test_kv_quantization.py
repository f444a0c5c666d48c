"""Quantised entries: what is read back, whose format it is, and scales that go with their entries (S-KV)."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from draftproof import kernels
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.kernels.eager_codes import read_back
from draftproof.properties.coverage.counts import counts
from draftproof.properties.judge import judge
from draftproof.properties.values.scenario import ProbeModel
from draftproof.reference.memo import Memo
from draftproof.reference.probe.ring import coded
from draftproof.reference.probe.target import ReferenceProbeTarget
from tests.properties.facts import names_of
from tests.properties.ideal import IdealSubject
from tests.properties.test_windows import SCENARIO

CODED = replace(SCENARIO, model=replace(SCENARIO.model, kv_bits=8), draft=replace(SCENARIO.draft, kv_bits=16))


@pytest.mark.parametrize("subject", [EngineSubject(device="cpu"), IdealSubject()])
def test_codes_of_two_formats_pass(subject: EngineSubject | IdealSubject) -> None:
    ran = evidence(subject, CODED)
    assert judge(ran).passed
    counted = counts(ran)
    assert [counted[name] for name in names_of("kv-quantization")] == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("bits", [8, 16])
def test_both_sides_read_back_the_same(bits: int) -> None:
    x = torch.randint(-(1 << 63), (1 << 63) - 1, (5, 2, 4), generator=torch.Generator().manual_seed(bits))
    codes = [torch.zeros(5, 2, 4, dtype=torch.int8 if bits == 8 else torch.int16) for _ in "kv"]
    scales = [torch.zeros(5, 2, dtype=torch.int64) for _ in "kv"]
    kernels.quantised_write(*codes, *scales, x, x, torch.arange(5))
    read = read_back(codes[0], scales[0]).numpy().view(np.uint64)
    assert np.array_equal(read, coded(x.numpy().view(np.uint64), bits))
    assert np.array_equal(read[..., 0], x.numpy().view(np.uint64)[..., 0])


def test_fewer_bits_change_what_is_computed_but_not_the_carry() -> None:
    model, tokens = (
        ProbeModel(seed=3, layers=2, heads=2, kv_heads=1, key_dim=2, value_dim=3, lanes=5, vocab=37),
        (4, 9, 1),
    )
    passes = {bits: ReferenceProbeTarget(replace(model, kv_bits=bits), Memo()).forward(tokens) for bits in (64, 16, 8)}
    assert len({one.hidden.tobytes() for one in passes.values()}) == 3
    assert len({one.hidden[:, 0].tobytes() for one in passes.values()}) == 1
