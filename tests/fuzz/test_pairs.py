"""Faults of features that meet: the parts that their failures take name both features."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from draftproof.faults.catalogue import catalogue, read_sources
from draftproof.faults.patched_sources import write_copy
from draftproof.fuzz.bisect.search import bisect, kernels_used
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.values.scenario import Scenario, States
from tests.named import named
from tests.properties.evidence import DISAGGREGATED, TREE


def scheduled(scenario: Scenario, **schedule: Any) -> Scenario:
    return replace(scenario, schedule=replace(scenario.schedule, **schedule))


def served_from_a_cache() -> Scenario:
    """The second request comes when the first one's prompt is in the cache of the prefill engine."""
    first, second, *others = DISAGGREGATED.requests
    again = replace(second, prompt=(*first.prompt[:6], 1, 2), arrival=6)
    requests = (first, again, *others)
    return scheduled(replace(DISAGGREGATED, states=States(), model=TREE.model, requests=requests), prefix_cache=True)


FEW_PAGES = scheduled(replace(TREE, memory=replace(TREE.memory, pages=12)), preemption=True)
PAIRS = {
    "preemption-tree-pages-of-a-chain": (FEW_PAGES, {"trees", "preemption"}),
    "overlap-tensor-results-as-they-come": (
        scheduled(named("ranks_tensor_hybrid"), overlap=("late",)),
        {"tensor-parallel", "overlap"},
    ),
    "disaggregation-served-pages-not-sent": (served_from_a_cache(), {"prefix-cache", "disaggregation"}),
}


@pytest.fixture
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    """A worker of the engine with this fault."""
    copy = write_copy(tmp_path / "sources", read_sources(), catalogue()[request.param].hunks())
    spec = SubjectSpec(folder=copy.folder, hunks=copy.hunks)
    with Pool(spec, 1, tmp_path / "pool", deadline=120.0) as started:
        yield started


@pytest.mark.parametrize(("pool", "scenario", "pair"), [(name, *of) for name, of in PAIRS.items()], indirect=["pool"])
def test_a_pair_is_named(pool: Pool, scenario: Scenario, pair: set[str]):
    (answer,) = pool.run([Order(number=0, scenario=scenario)])
    kernels = kernels_used(pool, scenario)
    assert kernels
    assert pair <= set(bisect(scenario, answer, kernels, pool.run, width=1).needed)
