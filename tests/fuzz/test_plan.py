"""Blocks of a campaign are a function of their number, one list after the other, and ask for no engine."""

import subprocess
import sys

import pytest

from draftproof.fuzz.campaign.plan import BLOCK, LIST, CampaignPlan, Planned
from draftproof.properties.formats.case import decode, encode
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, algorithm
from draftproof.properties.values.scenario import Scenario

Block = list[Planned]


@pytest.fixture(scope="module")
def blocks() -> tuple[Block, Block]:
    """The first two blocks of seed 3."""
    plan = CampaignPlan(3, ALGORITHMS)
    return plan.block(0), plan.block(1)


def test_a_block_is_a_function_of_its_number(blocks: tuple[Block, Block]) -> None:
    plan, (first, later) = CampaignPlan(3, ALGORITHMS), blocks
    assert (plan.block(1), plan.block(0)) == (later, first)
    assert first != later
    assert CampaignPlan(4, ALGORITHMS).block(0) != first
    assert [len(block) for block in (first, later)] == [BLOCK, BLOCK]


def test_blocks_are_those_of_a_list_and_then_of_the_next() -> None:
    assert LIST % BLOCK == 0
    plan, last = CampaignPlan(0, ("eagle",)), LIST // BLOCK
    assert [one.scenario for number in (0, 1) for one in plan.block(number)] == generate(0, 2 * BLOCK)
    after = [one.scenario for one in plan.block(last)]
    assert after not in ([one.scenario for one in plan.block(number)] for number in range(2))
    assert [one.scenario for one in CampaignPlan(1, ("eagle",)).block(0)] != after, "two seeds share no list"


def test_planning_imports_no_engine_and_not_hypothesis(blocks: tuple[Block, Block]) -> None:
    code = (
        "import sys\n"
        "from draftproof.fuzz.campaign.plan import CampaignPlan\n"
        "from draftproof.properties.formats.case import encode\n"
        "from draftproof.properties.values.drafts import ALGORITHMS\n"
        "for one in CampaignPlan(3, ALGORITHMS).block(1):\n"
        "    print(encode(one.scenario), one.origin)\n"
        "names = ('draftproof.engine', 'draftproof.kernels', 'hypothesis')\n"
        "loaded = [name for name in sys.modules if name.startswith(names)]\n"
        "assert not loaded, loaded\n"
    )
    alone = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    here = [f"{encode(one.scenario)} {one.origin}" for one in blocks[1]]
    assert alone.rstrip("\n") == "\n".join(here)


def test_scenarios_are_valid_and_survive_json_and_say_their_shape(blocks: tuple[Block, Block]) -> None:
    for scenario, origin in blocks[0]:
        assert validate(scenario) == scenario
        assert decode(encode(scenario), Scenario) == scenario
        assert origin.startswith("shape ")


@pytest.mark.parametrize("names", [("dflash",), ("eagle3", "ngram")], ids=" ".join)
def test_only_drafts_that_were_asked_for_come(names: tuple[Algorithm, ...]) -> None:
    assert {algorithm(one.scenario.draft) for one in CampaignPlan(0, names).block(0)} == set(names)


def test_every_draft_has_its_turn(blocks: tuple[Block, Block]) -> None:
    assert {algorithm(one.scenario.draft) for one in blocks[0]} == set(ALGORITHMS)
