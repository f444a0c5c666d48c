"""Which parts a failure takes: delta debugging by exhaustion, parts that can be turned off, kernels by their twins."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
import torch

from draftproof import kernels
from draftproof.engine.subject import EngineSubject
from draftproof.fuzz.bisect import search
from draftproof.fuzz.bisect.ddmin import NotFailingError, Parts, ddmin
from draftproof.fuzz.bisect.parts import KERNEL, engine_parts, lone_requests, present, with_parts
from draftproof.fuzz.bisect.search import SAME_WITHOUT_PART, Alone, Bisection, bisect, closed, kernels_used
from draftproof.harness.lockstep import evidence
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.harness.twins import KERNELS, twins
from draftproof.harness.workers import worker
from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import TWINS_SLOWER, Pool
from draftproof.properties.fit import fit
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.relations import Different
from draftproof.properties.values.scenario import Graphs, Ranks, Scenario
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Divergence, Outcome
from tests.harness.forked import FORKED
from tests.named import named, names

SCENARIOS = list(map(named, names()))
NAMES = ("a", "b", "c", "d")


def subsets(names: Sequence[str]) -> list[Parts]:
    return [frozenset(some) for size in range(len(names) + 1) for some in itertools.combinations(names, size)]


def by(failing: set[Parts], asked: list[Parts] | None = None) -> Callable[[Sequence[Parts]], list[bool]]:
    def fails(sets: Sequence[Parts]) -> list[bool]:
        if asked is not None:
            asked.extend(sets)
        return [one in failing for one in sets]

    return fails


def monotone(names: Sequence[str]) -> Iterator[set[Parts]]:
    """Every function that fails with more parts if it fails with fewer, as the sets with which it fails."""
    everything = subsets(names)
    seen: set[frozenset[Parts]] = set()
    for count in range(1, 7):
        for minimal in itertools.combinations(everything, count):
            failing = frozenset(one for one in everything if any(least <= one for least in minimal))
            if failing not in seen:
                seen.add(failing)
                yield set(failing)


def test_of_every_monotone_function_a_minimal_set_is_found():
    functions = list(monotone(NAMES))
    assert len(functions) == 167  # Dedekind's number for four, less the function that never fails
    for failing in functions:
        minimal = {one for one in failing if not any(other < one for other in failing)}
        for width in (1, 3):
            found = frozenset(ddmin(NAMES, by(failing), width=width))
            assert found in minimal


def test_of_every_function_a_set_is_found_that_no_single_part_can_leave():
    names = NAMES[:3]
    everything = subsets(names)
    for mask in range(1 << (len(everything) - 1)):
        failing = {one for place, one in enumerate(everything[:-1]) if mask >> place & 1} | {everything[-1]}
        found = frozenset(ddmin(names, by(failing)))
        assert found in failing
        if frozenset() not in failing:
            assert not any(found - {part} in failing for part in found)


def test_no_set_is_asked_for_twice():
    chance = random.Random(5)
    everything = subsets("abcdef")
    for _ in range(50):
        failing = {one for one in everything if chance.random() < 0.3} | {everything[-1]}
        asked: list[Parts] = []
        ddmin("abcdef", by(failing, asked), width=2)
        assert len(asked) == len(set(asked))


def test_parts_go_with_what_they_need():
    needs = {"b": ("a",), "c": ("b",)}
    assert closed(frozenset("bcd"), needs) == frozenset("d")
    failing = by({one for one in subsets(NAMES) if "c" in one})
    assert ddmin(NAMES, lambda sets: failing([closed(one, needs) for one in sets])) == ("a", "b", "c")


def test_what_does_not_fail_cannot_be_bisected():
    with pytest.raises(NotFailingError, match="every part on"):
        ddmin(NAMES, by(set()))
    assert ddmin(NAMES, by(set(subsets(NAMES)))) == ()


def names_of(scenario: Scenario) -> set[str]:
    return {part.name for part in present(scenario, engine_parts(0))}


def test_every_part_is_there_in_some_scenario_and_off_in_another():
    found = [names_of(named(name)) for name in names()]
    every = {part.name for part in engine_parts(0)}
    assert set().union(*found) == every
    always = {"drafts", "taps"}
    assert always <= set.intersection(*found) <= always | {"requests", "paging", "batching"}


@pytest.mark.parametrize("name", names())
def test_any_parts_can_be_off_together(name):
    scenario = named(name)
    parts = present(scenario, engine_parts(len(scenario.requests) - 1))
    names = [part.name for part in parts]
    chance = random.Random(name)
    assert with_parts(scenario, parts, frozenset(names)) == scenario
    for _ in range(30):
        on = frozenset(name for name in names if chance.random() < 0.5)
        off = with_parts(scenario, parts, on)
        assert validate(off) == off
        left = {part.name for part in present(off, engine_parts(0))}
        # Without an overlap drafts may be looked up, and without ranks, or windows that are shorter than a context, a
        # request may have one page: neither is a part of a scenario that has them.
        later = {"draft model"} if scenario.schedule.overlap else set()
        later |= {"paging"} if scenario.ranks != Ranks() or scenario.has_windows else set()
        assert left <= on | {"batching", "padding", "chunks"} | later


def test_what_is_off_already_is_not_there():
    scenario = named("eagle_padded")
    plain = msgspec.structs.replace(scenario, graphs=Graphs(), variant="none", adaptive_steps=None)
    assert not names_of(plain) & {"graphs", "padding", "variant", "adaptive-steps"}
    exact = msgspec.structs.replace(scenario, graphs=Graphs(sizes=tuple(range(1, scenario.schedule.max_batch + 1))))
    assert "graphs" in names_of(exact)
    assert "padding" not in names_of(exact)


def test_each_request_alone():
    scenario = named("five_in_graphs")
    lone = lone_requests(scenario)
    assert [one.requests[0].prompt for one in lone] == [request.prompt for request in scenario.requests]
    assert {(len(one.requests), one.requests[0].arrival) for one in lone} == {(1, 0)}


def divergence(**fields: object) -> Divergence:
    told = {
        "contract": "commit.length",
        "channel": "commit.length",
        "phase": "commit",
        **fields,
    }
    place = {"request": 0, "round": 1, "step": -1, "layer": -1, "row": -1, "index": -1}
    return Divergence(expected="1", got="2", relation=Different(), **place, **told)  # type: ignore[arg-type]


FAILS = Answer(number=0, outcome=Outcome.FAIL, first=divergence())
GONE = Answer(number=0, outcome=Outcome.PASS)
OTHER = Answer(number=0, outcome=Outcome.FAIL, first=divergence(contract="accept.greedy"))
BROKEN = Answer(number=0, outcome=Outcome.ERROR)
RICH = msgspec.structs.replace(named("hybrid_replay"), variant="other_batches")


def bisected(answer: Callable[[frozenset[str], Scenario], Answer], **options) -> Bisection:
    """`answer` is told which kernels are replaced by their twins."""

    def run(orders):
        return [answer(frozenset(order.twins), order.scenario) for order in orders]

    return bisect(RICH, answer(frozenset(), RICH), ("kv_write", "gdn_verify", "rope"), run, **options)


def hybrid_in_a_graph(replaced: frozenset[str], scenario: Scenario) -> Answer:
    broken = scenario.model.linear and scenario.graphs.capture and "gdn_verify" not in replaced
    return FAILS if broken else GONE


def row(found: Bisection, name: str):
    return next(part for part in found.parts if part.name == name)


def test_parts_and_kernels_that_it_takes():
    found = bisected(hybrid_in_a_graph)
    assert found.needed == ("graphs", "hybrid", f"{KERNEL}gdn_verify")
    assert row(found, "graphs").alone is Alone.GONE
    assert row(found, f"{KERNEL}gdn_verify").alone is Alone.GONE
    assert row(found, "requests").alone is Alone.STAYS
    assert row(found, f"{KERNEL}rope").alone is Alone.UNTRIED
    assert {part.name for part in found.parts if part.needed} == set(found.needed)
    assert found.answer == FAILS


def test_on_a_gpu_no_twin_runs_beside_graphs():
    asked: list[tuple[frozenset[str], bool]] = []

    def answer(replaced: frozenset[str], scenario: Scenario) -> Answer:
        asked.append((replaced, scenario.graphs.capture))
        return hybrid_in_a_graph(replaced, scenario)

    found = bisected(answer, device="cuda")
    assert not any(replaced and capture for replaced, capture in asked)
    assert found.needed == (
        "graphs",
        "hybrid",
        *(f"{KERNEL}{name}" for name in ("kv_write", "gdn_verify", "rope")),
    )
    assert found.notes == (search.TOGETHER,)


def test_a_gpu_kernel_is_found_where_no_graph_is_needed():
    found = bisected(lambda replaced, _: GONE if "rope" in replaced else FAILS, device="cuda")
    assert found.needed == (f"{KERNEL}rope",)


def test_it_may_take_none_or_all_of_two_ways():
    assert bisected(lambda *_: FAILS).needed == ()
    either = bisected(lambda _, one: FAILS if one.model.linear or one.graphs.capture else GONE)
    assert either.needed in (("graphs",), ("hybrid",))
    assert {row(either, name).alone for name in ("graphs", "hybrid")} == {Alone.STAYS}


def test_another_failure_is_shown_as_such():
    def answer(_: frozenset[str], scenario: Scenario) -> Answer:
        if not scenario.model.linear:
            return OTHER
        return FAILS if scenario.graphs.capture else BROKEN

    found = bisected(answer)
    assert found.needed == ("graphs", "hybrid")
    assert row(found, "hybrid").alone is Alone.OTHER
    assert row(found, "hybrid").other.startswith("accept.greedy | ")
    assert row(found, "graphs").alone is Alone.BROKEN


def test_what_shows_the_failure_stays_on():
    tapped = Answer(number=0, outcome=Outcome.FAIL, first=divergence(contract="verify.ids", channel="verify.ids"))
    varied = Answer(number=0, outcome=Outcome.FAIL, first=divergence(contract="variant.taps_off"))
    for answer, name in ((tapped, "taps"), (varied, "variant")):
        found = bisected(lambda _, one, answer=answer: answer if one.taps and one.variant == RICH.variant else GONE)
        assert name in found.fixed
        assert name not in {part.name for part in found.parts}


def test_what_a_subject_cannot_do_without_stays_on():
    """Off would be a page size, a draft or a commit that it does not have: another failure, and no cause."""
    rich = named("aborted")
    sizes, drafts = (rich.memory.page_size,), ("eagle",)
    limits = Limits(page_sizes=sizes, drafts=drafts, features="all")
    ran: list[Scenario] = []

    def run(orders):
        ran.extend(order.scenario for order in orders)
        return [FAILS for _ in orders]

    assert fit(rich, limits) == rich
    found = bisect(rich, FAILS, (), run, limits=limits)
    assert ran
    assert all(one.memory.page_size in sizes for one in ran)
    assert all(algorithm(one.draft) in drafts for one in ran)
    assert set(found.fixed) == {"paging", "draft model"}
    assert set(found.fixed.values()) == {"without it the subject cannot run"}
    assert not {"paging", "draft model"} & {part.name for part in found.parts}
    without = bisect(rich, FAILS, (), run)
    assert {"paging", "draft model"} <= {part.name for part in without.parts}


def test_the_lone_request_is_one_that_fails_alone():
    prompt = RICH.requests[-1].prompt
    found = bisected(lambda _, one: FAILS if any(r.prompt == prompt for r in one.requests) else GONE)
    assert found.needed == ()


def test_only_failures_of_the_same_contract_are_the_same():
    identity = FAILS.identity
    assert identity is not None
    assert Answer(number=0, outcome=Outcome.FAIL, first=divergence(channel="commit.state")).is_same(
        identity, SAME_WITHOUT_PART
    )
    assert not OTHER.is_same(identity, SAME_WITHOUT_PART)
    assert not GONE.is_same(identity, SAME_WITHOUT_PART)


def test_what_passes_or_does_not_fail_again_is_refused():
    with pytest.raises(ValueError, match="invalid outcome PASS: expected FAIL, CRASH or HANG"):
        bisected(lambda *_: GONE)
    once = iter((FAILS,))
    with pytest.raises(NotFailingError):
        bisected(lambda *_: next(once, GONE))


def wrong(name: str, implementation: Callable[..., None]) -> AbstractContextManager[object]:
    """A broken kernel."""
    return patch.object(getattr(kernels, name), "host", implementation)


def all_right(correct_len, bonus, index, ids, choice, counts):
    """Whatever was drafted is accepted."""
    rows = torch.arange(index.shape[1])
    index.copy_(torch.where(rows <= counts[:, None], rows, -1))
    correct_len.copy_(torch.where(counts < 0, -1, counts))
    bonus.copy_(torch.where(counts < 0, 0, choice.gather(1, counts.clamp(min=0)[:, None])[:, 0]))


def judged(orders: Sequence[Order]) -> list[Answer]:
    answers = []
    for order in orders:
        try:
            with twins(order.twins, "cpu"):
                found = judge(evidence(EngineSubject(), order.scenario))
        except SubjectCrashedError as error:
            answers.append(Answer(number=0, outcome=Outcome.CRASH, error=error.error))
            continue
        outcome = Outcome.PASS if found.first is None else Outcome.FAIL
        answers.append(Answer(number=0, outcome=outcome, first=found.first))
    return answers


@pytest.mark.filterwarnings("ignore:Warning only once")
def test_a_broken_kernel_of_the_engine_is_named():
    scenario = named("eagle_padded")
    with wrong("greedy_accept", all_right):
        answer = judged([Order(number=0, scenario=scenario)])[0]
        assert answer.failing
        found = bisect(scenario, answer, ("assign_slots", "greedy_accept", "kv_write"), judged)
        assert found.needed == ("drafts", f"{KERNEL}greedy_accept")
    assert judged([Order(number=0, scenario=scenario)])[0].outcome is Outcome.PASS


def test_an_engine_of_twins_is_right():
    for scenario in map(named, ("eagle_padded", "hybrid_replay")):
        assert judged([Order(number=0, scenario=scenario, twins=KERNELS)])[0].outcome is Outcome.PASS


@pytest.mark.gpu
def test_an_engine_of_twins_is_right_on_a_gpu():
    scenario = named("prefix_cached_hybrid")
    with twins(KERNELS, "cuda"):
        assert judge(evidence(EngineSubject(device="cuda"), scenario)).passed


@pytest.mark.filterwarnings("ignore:Warning only once")
def test_twins_serve_until_they_are_let_go():
    used: list[str] = []
    choice, logits = torch.full((1,), 9), torch.tensor([[1.0, 3.0, 2.0]])
    with wrong("greedy_choice", lambda choice, logits: used.append("wrong")):
        with twins(("greedy_choice",), "cpu"):
            kernels.greedy_choice(choice, logits)
            assert (choice.item(), used) == (1, [])
        kernels.greedy_choice(choice, logits)
        assert used == ["wrong"]


@pytest.mark.filterwarnings("ignore:Warning only once")
def test_a_worker_has_twins_for_one_order_only(tmp_path):
    scenario = named("eagle_padded")
    work = worker._Work(SubjectSpec(), Journal(tmp_path / "journal"), tmp_path / "kernels", None)
    plain = Order(number=0, scenario=scenario)
    with wrong("greedy_accept", all_right):
        orders = (plain, msgspec.structs.replace(plain, twins=("greedy_accept",)), plain)
        outcomes = [work.answer(order).outcome for order in orders]
    assert outcomes == [Outcome.FAIL, Outcome.PASS, Outcome.FAIL]


def test_an_order_with_twins_may_take_longer(tmp_path):
    pool = Pool(SubjectSpec(), 1, tmp_path, deadline=7.0)
    order = Order(number=0, scenario=RICH)
    assert pool._limit(order) == 7.0
    assert pool._limit(msgspec.structs.replace(order, twins=("rope",))) == 7.0 * TWINS_SLOWER


def test_a_twin_on_the_host_writes_what_the_kernel_would():
    from draftproof.harness.twins import _on_host
    from draftproof.reference import ops

    choice = torch.full((2,), 9)
    _on_host(ops.greedy_choice, kernels.greedy_choice.op)(choice, torch.tensor([[1.0, 3.0], [4.0, 2.0]]))
    assert choice.tolist() == [1, 0]


def test_a_twin_that_there_is_not():
    with (
        pytest.raises(ValueError, match="invalid twin 'kv_writ': expected accept_tree, add_rms_norm"),
        twins(("kv_writ",), "cpu"),
    ):
        pass


def test_kernels_that_a_scenario_uses(tmp_path):
    with Pool(SubjectSpec(), 1, tmp_path, deadline=120.0, start=FORKED) as pool:
        used = kernels_used(pool, RICH)
        assert {"kv_write", "paged_attention", "greedy_accept", "conv_update"} <= set(used) < set(KERNELS)
        (plain,) = pool.run([Order(number=0, scenario=RICH)])
        assert plain.kernels == ()


def test_a_run_that_calls_no_kernel_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent.parent / "harness"))
    with (
        Pool(
            SubjectSpec(subject=SubjectChoice(name="subjects:Idle")), 1, tmp_path, deadline=120.0, start=FORKED
        ) as pool,
        pytest.raises(RuntimeError, match="called no kernel"),
    ):
        kernels_used(pool, RICH)
