"""Windows: what a row sees, whose window it is, and pages that go back behind all of them (S-WINDOW)."""

import numpy as np
import pytest
from msgspec.structs import replace

from draftproof.engine.pages import PagePool, PageTable
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features.windows import large_enough, without_windows
from draftproof.properties.fit import fit
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put_in
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import Eagle, Mtp
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import (
    Graphs,
    Memory,
    ProbeModel,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    columns_freed,
)
from draftproof.properties.values.trace import Key, Observation
from draftproof.reference.memo import Memo
from draftproof.reference.probe.target import ReferenceProbeTarget
from tests.properties.evidence import with_observations
from tests.properties.facts import names_of
from tests.properties.ideal import IdealSubject

MODEL = ProbeModel(
    seed=1,
    layers=2,
    heads=2,
    kv_heads=1,
    key_dim=2,
    value_dim=3,
    lanes=5,
    vocab=37,
    layer_types=("sliding_attention", "sliding_attention"),
    window=4,
)
HEAD = Eagle(seed=2, heads=1, kv_heads=1, key_dim=4, value_dim=2, lanes=6, window=6)
PLANS = (RoundPlan(num_drafts=2, num_correct=2), RoundPlan(num_drafts=2, num_correct=1))
SCENARIO = Scenario(
    model=MODEL,
    draft=HEAD,
    steps=2,
    memory=Memory(page_size=2, pages=24, request_slots=2, max_len=32),
    graphs=Graphs(sizes=(2,)),
    schedule=Schedule(max_batch=2, chunk=3),
    requests=(
        Request(arrival=0, prompt=(1, 2, 3, 4, 5, 6, 7), budget=12, rounds=PLANS),
        Request(arrival=3, prompt=(9, 8, 7), budget=9, rounds=PLANS),
    ),
)


@pytest.fixture(scope="module")
def ran() -> Evidence:
    return evidence(EngineSubject(device="cpu"), SCENARIO)


def test_windows_pass_and_free_pages(ran: Evidence) -> None:
    assert judge(ran).passed
    counted = counts(ran)
    assert all(counted[name] for name in names_of("windows")), {name: counted[name] for name in names_of("windows")}


def test_an_ideal_subject_passes() -> None:
    assert judge(evidence(IdealSubject(), SCENARIO)).passed


@pytest.mark.parametrize("window", [1, 3, 5])
def test_a_row_sees_its_window(window: int) -> None:
    """The first token is gone from a row's output as soon as no chain of windows reaches it."""
    model = replace(MODEL, layers=1, layer_types=("sliding_attention",), window=window)
    target = ReferenceProbeTarget(model, Memo())
    one, other = (target.forward((first, 2, 3, 4, 5, 6, 7)).hidden for first in (1, 30))
    differing = np.flatnonzero((one != other).any(axis=1))
    assert differing.tolist() == list(range(window))


def test_frontier() -> None:
    assert SCENARIO.widest_window == 6
    assert [columns_freed(SCENARIO, n) for n in (0, 5, 6, 7, 8, 9, 10)] == [0, 0, 0, 1, 1, 2, 2]
    chain = Mtp(seed=2, heads=1, kv_heads=1, key_dim=4, value_dim=2, lanes=6, window=6, layers=3)
    assert replace(SCENARIO, draft=chain).widest_window == 8
    assert replace(SCENARIO, draft=replace(HEAD, window=0)).widest_window == 0
    mixed = replace(MODEL, layer_types=("sliding_attention", "full_attention"))
    assert replace(SCENARIO, model=mixed).widest_window == 0
    assert replace(SCENARIO, schedule=replace(SCENARIO.schedule, prefix_cache=True)).widest_window == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            replace(SCENARIO, model=replace(MODEL, window=1)),
            "invalid model.window 1: expected at least memory.page_size",
        ),
        (
            replace(SCENARIO, draft=replace(HEAD, window=1)),
            "invalid draft.window 1: expected 0 .none., or at least memo",
        ),
        (replace(SCENARIO, model=replace(MODEL, window=0)), "invalid model.window 0: expected a window of 1 and more"),
        (
            replace(SCENARIO, model=replace(MODEL, layer_types=())),
            "invalid model.window 4: expected a window of 1 and more where a layer is sliding_attention, 0 where none",
        ),
    ],
)
def test_bad_input(changed: Scenario, message: str) -> None:
    with pytest.raises(InvalidScenarioError, match=message):
        validate(changed)


def test_a_page_that_stays_or_goes_early_is_found(ran: Evidence) -> None:
    """A column more in a table, or one less, is no page of its round."""
    places = [key for key in ran.subject.channel("round.table") if key.round == 4 and not key.request]
    first = min(places)
    more = Observation("round.table", Key(0, 4, row=first.row - 1), 23)
    assert not judge(with_observations(ran, (more,))).passed
    kept = tuple(one for one in ran.subject.observations if (one.channel, one.key) != ("round.table", first))
    without = replace_subject(ran, kept)
    assert not judge(without).passed


def replace_subject(ran: Evidence, kept: tuple[Observation, ...]) -> Evidence:
    from dataclasses import replace as changed

    return changed(ran, subject=ran.subject.__class__(ran.subject.subject, ran.subject.channels, kept))


def test_tables_drop_columns_once() -> None:
    import torch

    table, pool = PageTable(torch.zeros(2, 4, dtype=torch.int64)), PagePool((1, 2, 3, 4))
    row = table.take_row()
    table.grow([(row, 3)], pool)
    assert table.drop(row, 2) == (1, 2)
    assert table.drop(row, 2) == ()
    assert table.pages[row] == [0, 0, 3]
    assert table.device[row].tolist() == [0, 0, 3, 0]
    assert table.release(row) == (3,)


def test_subjects_without_windows_are_fitted() -> None:
    plain = fit(SCENARIO, Limits())
    assert plain.widest_window == 0
    assert plain.model.types == ("full_attention",) * 2
    assert without_windows(plain) == plain
    assert large_enough(put_in(SCENARIO, "memory", page_size=5)).model.window == 5
