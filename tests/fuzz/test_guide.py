"""Blocks are a function of their arguments, aim at what is missing, and starve nothing."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from draftproof.engine.subject import EngineSubject
from draftproof.fuzz.campaign.corpus import name_of
from draftproof.fuzz.campaign.guide import BLOCK, Guide, Proposed
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage import POINTS, bins, split, universe
from draftproof.properties.strategies.examples import no_constants_of_sources
from draftproof.properties.strategies.goals import AIMED, aim, aimed, near
from draftproof.properties.strategies.profiles import CARDS
from draftproof.properties.values.case import decode, encode
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, algorithm
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.properties.values.validate import validate
from tests.drawn import generate
from tests.properties.ideal import IdealSubject

CORPUS = generate(4, 10, ALGORITHMS)


class Enough(Exception):
    """What is looked for was drawn."""


def scenarios_of(
    strategy: st.SearchStrategy[Scenario], count: int, wanted: Callable[[Scenario], bool] = lambda _: False
) -> list[Scenario]:
    """As many scenarios, or those up to the first that is wanted."""
    found: list[Scenario] = []

    @seed(0)
    @settings(
        max_examples=count + 1,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(scenario: Scenario) -> None:
        found.append(scenario)
        if len(found) > 1 and wanted(scenario):
            raise Enough

    with suppress(Enough), no_constants_of_sources():
        collect()
    return found[1:]


@cache
def blocks(guided: bool = True) -> tuple[list[Proposed], ...]:
    """The first three blocks, of a guide each: they are functions of their arguments."""
    return tuple(Guide(0, ALGORITHMS, guided=guided).block(number, {}, CORPUS) for number in range(3))


def aims(block: list[Proposed]) -> set[str]:
    return {one.origin.removeprefix("aimed at ") for one in block if one.origin.startswith("aimed at ")}


def all_but(*missing: str) -> dict[str, int]:
    return {name: 5 for name in universe(ALGORITHMS) if name not in missing}


def test_a_block_is_a_function_of_its_arguments() -> None:
    guide = Guide(0, ALGORITHMS)
    one, other = guide.block(1, {}, CORPUS), guide.block(0, {}, CORPUS)
    assert one == blocks()[1]
    assert one != other == blocks()[0]
    assert one != Guide(1, ALGORITHMS).block(1, {}, CORPUS)
    assert len(one) == BLOCK


def test_a_block_imports_no_engine_and_does_not_depend_on_what_is_imported() -> None:
    code = (
        "import sys\n"
        "from draftproof.fuzz.campaign.guide import Guide\n"
        "from draftproof.properties.strategies.scenarios import generate\n"
        "from draftproof.properties.values.case import encode\n"
        "from draftproof.properties.values.drafts import ALGORITHMS\n"
        "for one in Guide(0, ALGORITHMS).block(1, {}, generate(4, 10, ALGORITHMS)):\n"
        "    print(encode(one.scenario), one.origin)\n"
        "loaded = [name for name in sys.modules if name.startswith(('draftproof.engine', 'draftproof.kernels'))]\n"
        "assert not loaded, loaded\n"
    )
    assert EngineSubject.name == "engine"
    alone = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    here = [f"{encode(one.scenario)} {one.origin}" for one in blocks()[1]]
    assert alone.rstrip("\n") == "\n".join(here)


@pytest.mark.parametrize("guided", [True, False])
def test_scenarios_are_valid_and_survive_json(guided: bool) -> None:
    for block in blocks(guided):
        for scenario, origin in block:
            assert validate(scenario) == scenario
            assert decode(encode(scenario), Scenario) == scenario
            assert origin.split()[0] in (("profile", "aimed", "near") if guided else ("profile",))


def test_without_a_guide_every_profile_and_draft_has_its_turn() -> None:
    guide = Guide(0, ALGORITHMS, guided=False)
    block = guide.block(0, all_but(), CORPUS)
    # A tree, what is compared with one, too few pages, a cache, a budget or ranks may take the place of any profile.
    cards = Counter(f"profile {profile.name}" for profile in CARDS)
    trees = [one for one in block if one.scenario.tree]
    assert len(block) == len(CARDS)
    assert len(trees) < 4
    schedules = [(one, one.scenario.schedule) for one in block]
    others = [one for one, of in schedules if of.preemption or of.prefix_cache or of.step_tokens or of.handover]
    others += [one for one in block if one.scenario.variant == "chain_as_tree" or one.scenario.ranks.size > 1]
    assert Counter(one.origin for one in block if not one.scenario.tree and one not in others) <= cards
    assert {one.origin for one in trees} <= cards.keys()
    assert {algorithm(one.scenario.draft) for one in block} == set(ALGORITHMS)
    by_name = {f"profile {profile.name}": profile for profile in CARDS}
    for scenario, origin in (one for number in range(4) for one in guide.block(number, {}, ())):
        assert isinstance(scenario.model, ProbeModel)
        assert (scenario.model.linear is not None) == by_name[origin].hybrid
        assert by_name[origin].adaptive or scenario.adaptive is None
    encoded = [encode(one.scenario) for number in range(4) for one in guide.block(number, {}, ())]
    assert len(set(encoded)) > 0.9 * len(encoded)


def test_part_of_a_guided_block_aims_at_nothing() -> None:
    """The same that come without a guide, so that nothing starves."""
    plain = [one for block in blocks(guided=False) for one in block]
    guided = [one for block in blocks() for one in block]
    free = [one for one in guided if one.origin.startswith("profile")]
    assert free == plain[: len(free)]
    assert len(guided) / 4 < len(free) < len(guided) / 2


def test_what_is_missing_is_aimed_at() -> None:
    hole = "accept x layers x draft: accept=partial, layers=replay, draft=mtp"
    block = Guide(0, ALGORITHMS).block(0, all_but(hole), ())
    assert hole in aims(block)
    rest = Guide(0, ALGORITHMS).block(0, {**all_but(), hole: 1}, ())
    assert aims(rest) <= set(universe(ALGORITHMS)), "with nothing missing, what was hit least often"
    assert len(rest) == BLOCK


def test_no_hole_starves() -> None:
    missing = set(universe(ALGORITHMS)[100:120])
    guide, seen = Guide(0, ALGORITHMS), all_but(*missing)
    aimed_at = {name for number in range(3) for name in aims(guide.block(number, seen, ()))}
    assert missing <= aimed_at


def test_neighbours_are_of_the_corpus() -> None:
    near_ones = [one for block in blocks() for one in block]
    hashes = {one.origin.removeprefix("near ") for one in near_ones if one.origin.startswith("near ")}
    assert hashes
    assert hashes <= {name_of(scenario) for scenario in CORPUS}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_only_drafts_that_were_asked_for_come(name: Algorithm) -> None:
    own = [one for one in CORPUS if algorithm(one.draft) == name]
    block = Guide(0, [name]).block(0, {}, own)
    assert {algorithm(one.scenario.draft) for one in block} == {name}
    assert {one.origin.split()[0] for one in block} == {"profile", "aimed", "near"}


def test_every_coverpoint_that_is_seldom_has_an_aim() -> None:
    of_size = {"keys", "state shape", "draft width", "vocabulary size"}
    of_layers = {"windows", "freed", "window", "entries", "draft entries", "images", "handover"}
    by_itself = of_size | of_layers | {"stops", "stopped by", "wrong", "surplus", "lockstep", "launch", "delay"}
    assert frozenset(POINTS) - AIMED == by_itself, "those come in every list"
    with pytest.raises(ValueError, match="invalid point 'colour': expected one of"):
        scenarios_of(st.composite(lambda draw: aim(draw, CORPUS[0], {"colour": "red"}))(), 1)


# What the rotation reaches seldom or never, each with an aim that does.
SELDOM = (
    "K x draft: K=6 and 7, draft=mtp",
    "K x draft: K=8 and more, draft=mtp",
    "K x page: K=6 and 7, page=inside",
    "batch: batch=6 and more",
    "draft x length: draft=ngram, length=to 512",
    "captured: captured=16 and more",
    "crossing x page size: crossing=more, page size=5 to 7",
    "taps: taps=off",
    "accept x rows x draft: accept=partial, rows=eager, draft=mtp",
    "accept x rows x page: accept=partial, rows=oversized, page=at",
    "accept x checkpoint x layers: accept=no drafts, checkpoint=none yet, layers=snapshot",
    "accept x chain: accept=none, chain=one layer",
    "accept x bucket: accept=partial, bucket=larger",
    "accept x cut: accept=partial, cut=stop",
    "draft x limit: draft=dflash, limit=max_len",
    "draft x end: draft=ngram, end=at prefill",
    "draft x end: draft=ngram, end=stop at prefill",
    "layers x switch: layers=snapshot, switch=up",
    "layers x switch: layers=snapshot, switch=down",
    "layers x control: layers=snapshot, control=adaptive and draft batch",
    "rows x switch: rows=oversized, switch=still none",
    "rows x variant: rows=oversized, variant=other_bucket",
    "stage x limit: stage=first, limit=max_len",
    "stage x limit: stage=only, limit=batch",
    "waited x pages: waited=yes, pages=fresh",
    "joined x chunks: joined=beside decode, chunks=tail of one",
    "path x rows: path=other to its end, rows=oversized",
    "path x penalty: path=other to its end, penalty=other choice",
    "topk x nodes: topk=5 and more, nodes=some",
    "moved x page size: moved=to another page, page size=8 and more",
    "accept x filter: accept=partial, filter=top-k 1",
    "accept x drawn: accept=all, drawn=yes",
    "accept x choice x draft: accept=all, choice=beside sampled, draft=mtp",
    "accept x grammar: accept=none, grammar=one token",
    "accept x logprobs: accept=partial, logprobs=of the token",
)


# The same of what takes an engine that runs out of pages.
OF_MEMORY = (
    "accept x attempt x layers: accept=partial, attempt=again, layers=replay",
    "draft x preempted: draft=ngram, preempted=again",
    "draft x refilled: draft=dflash, refilled=in chunks",
    "draft x refilled: draft=eagle, refilled=from cache",
    "layers x resumed in: layers=snapshot, resumed in=2",
    "draft x prefix: draft=standalone, prefix=all",
    "draft x evicted: draft=mtp, evicted=yes",
)


@pytest.mark.parametrize("name", OF_MEMORY)
def test_an_aim_reaches_what_becomes_of_memory(name: str) -> None:
    def is_hit(scenario: Scenario) -> bool:
        return name in bins(evidence(EngineSubject(), scenario))

    assert is_hit(scenarios_of(aimed(split(name)[1], ALGORITHMS), 24, is_hit)[-1])


@pytest.mark.parametrize("name", SELDOM)
def test_an_aim_reaches_what_the_rotation_seldom_does(name: str) -> None:
    wanted: Mapping[str, str] = split(name)[1]

    def is_hit(scenario: Scenario) -> bool:
        return name in bins(evidence(IdealSubject(), scenario))

    assert is_hit(scenarios_of(aimed(wanted, ALGORITHMS), 16, is_hit)[-1])


def test_a_neighbour_of_a_scenario_keeps_its_draft() -> None:
    for scenario in CORPUS[:5]:
        for one in scenarios_of(near(scenario, {"accept": "partial"}), 4):
            assert algorithm(one.draft) == algorithm(scenario.draft)
            assert validate(one) == one
