"""The engine on a CUDA device: real graphs, Triton kernels, the same traces to the last bit."""

import msgspec
import pytest
import torch

from draftproof.engine.subject import EngineSubject
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.scenario import Graphs, Scenario
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.engine.test_subject import SETTINGS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: run by make test-gpu on a GPU machine"),
]


@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS)
def test_the_trace_is_the_cpu_trace_bit_for_bit(case: Scenario):
    script = solve(case)
    here, there = EngineSubject("cpu").run(case, script), EngineSubject("cuda").run(case, script)
    assert [o for o in here.observations if o not in set(there.observations)] == []
    assert here == there


@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS)
def test_the_trace_is_what_the_reference_says(case: Scenario):
    script = solve(case)
    reference, engine = run(case, script), EngineSubject("cuda").run(case, script)
    for channel in reference.channels:
        assert reference.channel(channel).items() <= engine.channel(channel).items(), channel


def test_graphs_and_the_same_shapes_run_eagerly_agree():
    case = SETTINGS["graphs"]
    eager = msgspec.structs.replace(case, graphs=Graphs(sizes=case.graphs.sizes, capture=False))
    graphs, plain = (EngineSubject("cuda").run(scenario, solve(scenario)) for scenario in (case, eager))
    assert max(value.replays for value in graphs.channel("graph.replay").values()) > 1
    # A launch has another number where captures come before it.
    numbered = {name for name in graphs.channels if CHANNELS[name].is_of_launches or name.endswith(".discarded")}
    for channel in graphs.channels - numbered - {"round.rows"}:
        assert graphs.channel(channel) == plain.channel(channel), channel
