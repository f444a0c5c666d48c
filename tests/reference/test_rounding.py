"""The reference's second run, in float32: the same tokens, a little off."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from draftproof.reference.solved import solved
from tests.checkpoints import tiny_glm4_moe
from tests.named import named
from tests.named.real import real


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_glm4_moe(tmp_path_factory.mktemp("glm"))


@pytest.mark.parametrize("draft", ["mtp", "ngram"])
def test_it_is_of_the_same_tokens_and_a_little_off(folder: Path, draft):
    (scenario,) = real(folder, ["eagle_padded"], draft)
    exact = solved(scenario).trace
    assert exact is not None
    rounded = exact.rounded
    assert rounded is not None
    for channel in ("verify.ids", "verify.positions", "accept.emitted", "commit.length"):
        assert rounded.channel(channel) == exact.channel(channel), channel
    distances = [
        float(np.abs(value - other).max())
        for channel in ("verify.hidden", "commit.kv")
        for value, other in zip(exact.channel(channel).values(), rounded.channel(channel).values(), strict=True)
        if isinstance(value, np.ndarray) and isinstance(other, np.ndarray)
    ]
    assert 0 < max(distances) < 1e-4
    others = [rounded, *exact.rounded_again()]
    hidden = [np.concatenate([*one.channel("verify.hidden").values()]) for one in others]
    assert len(others) == 5
    assert all(0 < np.abs(one - other).max() < 1e-4 for one, other in itertools.combinations(hidden, 2))


def test_every_round_of_a_model_with_experts_has_a_gap(folder: Path):
    (scenario,) = real(folder, ["eagle_padded"], "mtp")
    known = solved(scenario)
    assert known.trace is not None
    rounds = {(number, i) for number, one in enumerate(known.script.requests) for i in range(len(one.rounds) + 1)}
    assert set(known.trace.gaps) == rounds
    assert all(0 < gap < 1 for gap in known.trace.gaps.values())


def test_probes_have_none():
    trace = solved(named("eagle_padded")).trace
    assert trace is not None
    assert trace.rounded is None
