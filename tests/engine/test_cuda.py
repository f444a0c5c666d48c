"""The engine on a CUDA device: real graphs, Triton kernels, the same traces to the last bit."""

from collections.abc import Callable

import pytest
import torch
from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.scenario import Graphs, Ranks, Scenario
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.engine.test_subject import SETTINGS
from tests.named import named, names


def on_a_gpu(test: Callable[..., None]) -> Callable[..., None]:
    reason = "no CUDA device: run by make test-gpu on a GPU machine"
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason=reason)(test))


@on_a_gpu
@pytest.mark.parametrize("name", [name for name in names() if named(name).ranks == Ranks()])
def test_a_scenario_of_every_feature_has_one_trace_on_both_devices(name: str):
    case = named(name)
    script = solve(case)
    here, there = EngineSubject("cpu").run(case, script), EngineSubject("cuda").run(case, script)
    # What an engine keeps beside its requests is another device's own: buffers, streams, graphs.
    told = [
        [o for o in trace.observations if o.channel not in ("pool.kept", "pool.reachable")] for trace in (here, there)
    ]
    if case.schedule.overlap:
        # Late work is seen on a CPU when it runs, and on a GPU as it is given: in another order, step by step.
        told = [sorted(one, key=lambda o: (o.channel, o.key)) for one in told]
    assert [o for o in told[0] if o not in set(told[1])] == []
    assert told[0] == told[1]


@on_a_gpu
@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS)
def test_the_trace_is_the_cpu_trace_bit_for_bit(case: Scenario):
    script = solve(case)
    here, there = EngineSubject("cpu").run(case, script), EngineSubject("cuda").run(case, script)
    assert [o for o in here.observations if o not in set(there.observations)] == []
    assert here.observations == there.observations
    # Ranks need a GPU each.
    assert here.channels - {"rank.collectives"} == there.channels - {"rank.collectives"}


@on_a_gpu
@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS)
def test_the_trace_is_what_the_reference_says(case: Scenario):
    script = solve(case)
    reference, engine = run(case, script), EngineSubject("cuda").run(case, script)
    for channel in reference.channels:
        assert reference.channel(channel).items() <= engine.channel(channel).items(), channel


@on_a_gpu
def test_graphs_and_the_same_shapes_run_eagerly_agree():
    case = SETTINGS["graphs"]
    eager = replace(case, graphs=Graphs(sizes=case.graphs.sizes, capture=False))
    graphs, plain = (EngineSubject("cuda").run(scenario, solve(scenario)) for scenario in (case, eager))
    assert max(value.replays for value in graphs.channel("graph.replay").values()) > 1
    # A launch has another number where captures come before it.
    numbered = {name for name in graphs.channels if CHANNELS[name].is_of_launches or name.endswith(".discarded")}
    for channel in graphs.channels - numbered - {"round.rows"}:
        assert graphs.channel(channel) == plain.channel(channel), channel
