"""The whole engine on hybrid checkpoints in float64: what it reports is what the reference says.

Integers and tokens exactly, vectors but for the order of summation.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.observed import LaunchKind, LaunchRecord
from draftproof.properties.values.scenario import (
    Checkpoint,
    Graphs,
    Memory,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    States,
)
from draftproof.properties.values.trace import Trace
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.checkpoints import tiny_qwen3_5, tiny_qwen3_next

BOUND = 1e-9
WRITERS: dict[str, tuple[Callable[[Path], Path], int]] = {
    "qwen3_next": (tiny_qwen3_next, 53),
    "qwen3_5": (tiny_qwen3_5, 59),
}
# The reference is handed no configuration object, so that its fingerprint is another.
LEFT_OUT = {"config.seen"}


@pytest.fixture(scope="module", params=WRITERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    writer, vocab = WRITERS[request.param]
    return Checkpoint(path=str(writer(tmp_path_factory.mktemp(request.param))), vocab=vocab, dtype="float64")


def requests() -> tuple[Request, ...]:
    """None, some and all accepted, rounds without drafts, a prompt shorter than the convolution."""
    plans = ("3/1 2/2 0/0 3/0", "1/1 3/-1 3/3", "2/0 3/2")
    return tuple(
        Request(
            arrival=number,
            prompt=tuple((7 * number + 5 * i) % 53 for i in range(length)),
            budget=8,
            rounds=tuple(RoundPlan(num_drafts=int(w[0]), num_correct=int(w[2:])) for w in text.split()),
        )
        for number, (length, text) in enumerate(zip((7, 2, 9), plans, strict=True))
    )


def scenario(model: Checkpoint, built_in: bool, commit: str, sizes: tuple[int, ...]) -> Scenario:
    return validate(
        Scenario(
            model=model,
            draft=CheckpointDraft(seed=4, built_in=built_in),
            steps=3,
            memory=Memory(page_size=3, pages=40, request_slots=3, max_len=30),
            graphs=Graphs(sizes=sizes),
            schedule=Schedule(max_batch=2, chunk=4),
            requests=requests(),
            states=States(commit=commit, checkpoint=4),
        )
    )


RUNS = {
    "mtp, snapshot, eager": (True, "snapshot", ()),
    "mtp, replay, graphs": (True, "replay", (2,)),
    "eagle, snapshot, graphs": (False, "snapshot", (2,)),
    "eagle, replay, eager": (False, "replay", ()),
}


@pytest.mark.parametrize(("built_in", "commit", "sizes"), RUNS.values(), ids=RUNS)
def test_the_engine_reports_what_the_reference_says(
    model: Checkpoint, built_in: bool, commit: str, sizes: tuple[int, ...]
) -> None:
    case = scenario(model, built_in, commit, sizes)
    script = solve(case)
    expected, got = run(case, script), EngineSubject().run(case, script)
    assert different(expected, got) == []
    states = [value for value in got.channel("commit.state").values() if isinstance(value, np.ndarray)]
    assert len(states) > 10
    assert any(
        one.kind == LaunchKind.VERIFY and one.replays for one in got.typed("graph.replay", LaunchRecord).values()
    ) == bool(sizes)
    assert len(set(got.channel("config.seen").values())) == 1


def different(expected: Trace, got: Trace) -> list[tuple[object, ...]]:
    return [
        (channel, key, value, got.channel(channel).get(key))
        for channel in sorted(expected.channels - LEFT_OUT)
        for key, value in expected.channel(channel).items()
        if not same(value, got.channel(channel).get(key))
    ]


def same(expected: object, got: object) -> bool:
    if isinstance(expected, np.ndarray):
        near = isinstance(got, np.ndarray) and got.shape == expected.shape
        return near and float(np.linalg.norm(got - expected)) <= BOUND * float(np.linalg.norm(expected))
    if isinstance(expected, tuple) and len(expected) == 2 and isinstance(expected[1], float):
        # A choice and its margin.
        return isinstance(got, tuple) and got[0] == expected[0] and abs(got[1] - expected[1]) < BOUND
    return got == expected
