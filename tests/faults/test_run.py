"""Faults are brought back in processes of their own and end as what they are."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftproof.cli.app import run
from draftproof.engine.graphs.capturing import capturing
from draftproof.faults import run as faults
from draftproof.faults.catalogue import Fault, FaultFile, catalogue, read_sources, summary
from draftproof.faults.matrix import Spread
from draftproof.faults.orders import Batch, TaskResult
from draftproof.faults.run import FaultReport, FaultResult, run_faults
from draftproof.faults.served import ForkServer
from draftproof.faults.trial import FaultOutcome, SeedResult
from draftproof.harness.hunk_counters import HunkCounters
from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_CHANNELS, DRAFT_KINDS, TREE_CHANNELS
from draftproof.properties.values.relations import OffBy, Stride, WrongMatch
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome
from tests.faults.listed import listed

ENGINE = "engine/engine.py"
DEADLINE = 4.0
"""Seconds for an example; those that end take a tenth of a second."""
IMPORTS = "from draftproof.engine.packed import PackedTarget, packing"
STEP = next(line for line in read_sources()[ENGINE].splitlines() if "self.scheduler.plan(" in line)


def fault(name: str, old: str, *new: str, path: str = ENGINE, **header: str) -> FaultFile:
    """A fault that replaces one line of the sources, which is there once."""
    text = "\n".join((path, f"-{old}", *(f"+{line}" for line in new)))
    return FaultFile(fault=Fault(id=name, **header), text=text, path="")


@pytest.fixture(scope="module")
def report(server: ForkServer) -> FaultReport:
    """One run for everything that takes no catalogue."""
    early = catalogue()["draft-positions-advanced-early"]
    other = replace(early, fault=Fault(id="aimed-elsewhere", contract="commit.length", channel="commit.length"))
    stale = replace(early, fault=Fault(id="stale"), text=early.text.replace("positions.", "position."))
    files = [
        early,
        other,
        stale,
        fault("raises", STEP, "        raise IndexError('page 9')"),
        fault("dies", STEP, "        import os, signal", "        os.kill(os.getpid(), signal.SIGSEGV)"),
        fault("sleeps", STEP, "        import time", "        time.sleep(60)"),
        fault("harmless", STEP, STEP, "        pass"),
        fault("changes-nothing", STEP, f"{STEP}  # no change"),
        fault("names-nothing", STEP, f"{STEP}, undefined_at_run_time()"),
        fault("asks-for-what-is-gone", STEP, "        self.gone.plan()"),
        fault("asks-none", STEP, "        self.scheduler = None", STEP),
        fault("gives-what-nobody-takes", STEP, STEP.replace("_for)", "_for, gone=1)")),
        fault("import-fails", IMPORTS, IMPORTS, "from draftproof.engine.packed import gone"),
        fault("raises-at-import", IMPORTS, IMPORTS, "raise IndexError('page 9')"),
    ]
    return run_faults(files, seeds=[4, 8], examples=2, deadline=DEADLINE, serve=server.run)


def row(report: FaultReport, name: str) -> FaultResult:
    return next(result for result in report.faults if result.id == name)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("draft-positions-advanced-early", FaultOutcome.DETECTED),
        ("aimed-elsewhere", FaultOutcome.DETECTED_BY_OTHER),
        ("stale", FaultOutcome.STALE),
        ("raises", FaultOutcome.CRASHED),
        ("dies", FaultOutcome.CRASHED),
        ("sleeps", FaultOutcome.HUNG),
        ("harmless", FaultOutcome.SURVIVED),
        ("changes-nothing", FaultOutcome.STALE),
        ("names-nothing", FaultOutcome.STALE),
        ("asks-for-what-is-gone", FaultOutcome.STALE),
        ("asks-none", FaultOutcome.CRASHED),
        ("gives-what-nobody-takes", FaultOutcome.STALE),
        ("import-fails", FaultOutcome.STALE),
        ("raises-at-import", FaultOutcome.CRASHED),
    ],
)
def test_every_outcome(report, name, outcome):
    assert row(report, name).outcome is outcome


def test_the_clean_twin_passes_and_the_whole_does_not(report):
    assert {result.clean_twin for result in report.faults if result.outcome is not FaultOutcome.STALE} == {Outcome.PASS}
    assert report.verdict is Outcome.ERROR  # a stale fault


def test_numbers_are_one_a_seed(report):
    early = row(report, "draft-positions-advanced-early")
    counts = early.examples_to_detect
    assert len(early.examples_to_detect) == len(report.seeds) == 2
    assert early.median is not None
    assert all(seconds is not None and 0 < seconds < 60 for seconds in early.seconds_to_detect)
    assert (early.examples.low, early.examples.high) == (min(counts), max(counts))
    assert early.divergence is not None
    assert (early.divergence.relation, early.divergence.count) == (OffBy(1), early.divergence.total)
    assert early.divergence.output_changed is False
    harmless = row(report, "harmless")
    assert harmless.examples_to_detect == harmless.seconds_to_detect == (None, None)
    assert harmless.time.low is None
    assert "SIGSEGV" in row(report, "dies").detail
    assert all(seconds is not None and seconds >= DEADLINE for seconds in row(report, "sleeps").seconds_to_detect)
    assert "IndexError: page 9" in row(report, "raises").detail


def test_a_hunk_in_code_that_runs_is_not_inert(report):
    assert row(report, "harmless").inert_hunks == ()
    assert row(report, "draft-positions-advanced-early").inert_hunks == ()


MATCH = "        return Match(*self._longest())"


def test_a_fault_meets_scenarios_of_the_draft_that_it_names(server: ForkServer):
    changed = "        return Match(self._longest()[0], max(self._longest()[1] - 1, -1))"
    path = "engine/drafts/ngram.py"
    expected = {"contract": "draft.match", "channel": "propose.match"}
    files = [
        fault("of-ngram", MATCH, changed, path=path, draft="ngram", **expected),
        fault("of-all", MATCH, changed, path=path, draft="all", **expected),
        fault("of-eagle", MATCH, changed, path=path, **expected),
    ]
    report = run_faults(files, seeds=[1], examples=4, serve=server.run)
    assert [(one.draft, one.outcome) for one in report.faults] == [
        ("ngram", FaultOutcome.DETECTED),
        ("all", FaultOutcome.DETECTED),
        ("eagle", FaultOutcome.INERT),
    ]
    assert {one.clean_twin for one in report.faults} == {Outcome.PASS}
    first = row(report, "of-ngram").divergence
    assert first is not None
    assert (first.contract, first.relation) == ("draft.match", WrongMatch("place", -1))


def test_scenarios_are_made_once_a_seed_and_set_of_drafts(monkeypatch):
    made: list[tuple[int, tuple[str, ...]]] = []

    def generated(seed: int, count: int, drafts: tuple[str, ...]) -> list[Scenario]:
        made.append((seed, drafts))
        return listed(seed, count, drafts)  # type: ignore[arg-type]

    monkeypatch.setattr(faults, "generate", generated)
    files = [
        fault(f"{draft}-{i}", STEP, STEP, "        pass", draft=draft) for draft in ("ngram", "all") for i in (0, 1)
    ]
    report = run_faults(files, seeds=[1, 2], examples=2, parallel=1, serve=survived)
    assert made == [(1, ("ngram",)), (2, ("ngram",)), (1, ALGORITHMS), (2, ALGORITHMS)]
    assert {one.outcome for one in report.faults} == {FaultOutcome.SURVIVED}


def test_lists_that_are_made_side_by_side_are_those_that_are_made_in_turn(monkeypatch):
    monkeypatch.setattr(faults, "generate", listed)
    files = [fault(draft, STEP, STEP, "        pass", draft=draft) for draft in ("ngram", "all")]
    met: dict[int, list[Batch]] = {}
    for places in (1, 2):

        def kept(orders: Batch, places: int = places) -> Iterator[TaskResult]:
            met.setdefault(places, []).append(orders)
            return survived(orders)

        run_faults(files, seeds=[1, 2], examples=2, parallel=places, serve=kept)
    one, two = ({(of.tasks[0].id, of.seeds): of.scenarios for of in some} for some in met.values())
    assert one == two
    assert len(one) == 2


def survived(orders: Batch) -> Iterator[TaskResult]:
    """What a fork server says of faults that nobody notices."""
    for task in orders.tasks:
        seeds = tuple(SeedResult(seed=seed, outcome=FaultOutcome.SURVIVED) for seed in orders.seeds)
        yield TaskResult(id=task.id, seeds=seeds)


def test_captured_hits_count_only_if_a_graph_was_replayed():
    counters = HunkCounters(("a", "b"))

    @capturing()
    def capture() -> None:
        counters.hit(0)

    capture()
    counters.end_run(replays=0)
    assert counters.effective == ()
    capture()
    counters.hit(1)
    counters.end_run(replays=2)
    assert counters.effective == ("a", "b")


def test_a_fault_that_never_runs_is_inert(tmp_path: Path, capsys, shared_server):
    added = ["", "", "def never() -> int:", '    """Nobody calls this."""', "    return 1"]
    patch = tmp_path / "never.fault"
    lines = ("engine/pages.py", " from __future__ import annotations", *(f"+{line}" for line in added), "")
    patch.write_text("\n".join(lines))
    out = tmp_path / "out.json"
    assert run(["faults", "run", "--patch", str(patch), "--seeds", "1", "--examples", "1", "--json", str(out)]) == 2
    (found,) = json.loads(out.read_text())["faults"]
    assert (found["id"], found["outcome"]) == ("never", "inert")
    assert "never had an effect: engine/pages.py" in capsys.readouterr().out


def test_the_catalogue_applies_and_names_what_exists():
    sources = read_sources()
    for file in catalogue().values():
        assert not summary(file, sources).stale, file.fault.id
        contract, channel = file.fault.contract, file.fault.channel
        if contract != "HANG":
            assert contract in CONTRACTS_BY_NAME or contract.startswith("kernel."), file.fault.id
            assert channel in CHANNELS or channel.startswith("kernel."), file.fault.id
        assert file.fault.source, file.fault.id
        assert file.fault.mechanism, file.fault.id
        tapped = [
            kind.tapped | (TREE_CHANNELS if kind.trees else frozenset())
            for kind in DRAFT_KINDS
            if file.fault.draft in (kind.name, "all")
        ]
        drafted = channel in DRAFT_CHANNELS
        assert not drafted or any(channel in kind for kind in tapped), f"{file.fault.id}: no such channel of its draft"


def test_a_kernel_fault_is_found_under_the_interpreter(server: ForkServer):
    report = run_faults([catalogue()["kv-write-value-stride"]], seeds=[0], examples=3, serve=server.run)
    (found,) = report.faults
    assert found.outcome is FaultOutcome.DETECTED
    assert found.divergence is not None
    assert (found.divergence.contract, found.divergence.channel) == ("kernel.kv_write", "kernel.v_pool")
    assert found.inert_hunks == ()


def test_what_is_interpreted_meets_calls_of_dtypes_that_the_interpreter_has(server: ForkServer):
    """The clean twin passes, though the interpreter adds the bit patterns of bfloat16."""
    path, contract = "kernels/triton_linear.py", "kernel.linear_add"
    wrong = fault("adds-always", "    if ADD:", "    if True:", path=path, contract=contract)
    report = run_faults([wrong], seeds=[8], examples=12, serve=server.run)
    assert [(found.outcome, found.clean_twin) for found in report.faults] == [(FaultOutcome.SURVIVED, Outcome.PASS)]


def test_a_wrong_stride_is_reported_as_one(server: ForkServer):
    wrong = catalogue()["gdn-stride-of-steps-in-force"]
    report = run_faults([wrong], seeds=[8], examples=6, serve=server.run)
    (found,) = report.faults
    assert found.outcome is FaultOutcome.DETECTED
    assert found.divergence is not None
    relation = found.divergence.relation
    assert isinstance(relation, Stride)
    assert (relation.pitch.expected_name, relation.row.row) == ("A", 0)


def test_what_an_eager_fault_patches_is_not_in_the_gpu_lane():
    """Nor does it count there, and nothing is started for it."""

    def nothing(_orders: Batch) -> Iterator[TaskResult]:
        pytest.fail("nothing is to be run")

    report = run_faults([catalogue()["first-draft-unverified"]], seeds=[0], examples=1, device="cuda", serve=nothing)
    (found,) = report.faults
    assert found.outcome is FaultOutcome.ABSENT
    assert (report.totals.faults, report.verdict) == (0, Outcome.INCONCLUSIVE)


def test_a_kernel_meets_its_contract_and_whole_scenarios_on_a_gpu():
    """Both with a clean twin of their own; its contract says what becomes of it."""
    ordered: list[Batch] = []

    def served(orders: Batch) -> Iterator[TaskResult]:
        assert not orders.interpreted
        ordered.append(orders)
        return survived(orders)

    files = [catalogue()["kv-write-value-stride"]]
    report = run_faults(files, seeds=[0], examples=2, device="cuda", baseline=True, serve=served)
    calls, whole = ordered
    assert [task.ops for task in calls.tasks] == [("kv_write",), ("kv_write",)]
    assert [task.ops for task in whole.tasks] == [(), ()]
    assert (len(calls.baseline), len(whole.baseline), whole.parallel) == (0, 2, 6)
    assert [task.baseline for task in (*calls.tasks, *whole.tasks)] == [False, False, True, True]
    assert (report.faults[0].outcome, report.faults[0].whole) == (FaultOutcome.SURVIVED, FaultOutcome.SURVIVED)


def test_seeds_that_run_side_by_side_say_the_same(server: ForkServer):
    """Where there are places for more than a lane, each seed has a batch of its own."""
    ordered: list[Batch] = []

    def counted(orders: Batch) -> Iterator[TaskResult]:
        ordered.append(orders)
        return server.run(orders)

    files = [catalogue()["batch-order-mismatch"]]

    def without_times(parallel: int) -> list[FaultResult]:
        found = run_faults(files, seeds=[0, 1], examples=1, baseline=True, parallel=parallel, serve=counted).faults
        blank = {"seconds": 0.0, "time": Spread(), "seconds_to_detect": ()}
        return [replace(one, **blank) for one in found]

    assert without_times(1) == without_times(5)
    assert [orders.seeds for orders in ordered] == [(0, 1), (0,), (1,)]


def test_the_smoke_set_has_a_fault_of_every_draft_and_lane():
    smoke = [file for file in catalogue().values() if file.fault.smoke]
    assert {file.fault.draft for file in smoke} == set(ALGORITHMS)
    assert {file.patches for file in smoke} == {"engine", "eager", "triton"}
    assert 20 <= len(smoke) <= 30
    assert run(["faults", "run", "--smoke", "--id", smoke[0].fault.id]) == 2


def test_every_triton_module_has_a_fault():
    paths = {hunk.path for file in catalogue().values() for hunk in file.hunks()}
    modules = {path for path in read_sources() if path.startswith("kernels/triton_")}
    assert modules - paths == {"kernels/triton_common.py"}


SEEDS_DOCUMENTS = {
    "sgl-project/sglang#22041",
    "sgl-project/sglang#23331",
    "sgl-project/sglang#25015",
    "sgl-project/sglang#25029",
    "sgl-project/sglang Step3.5 MTP chain",
}


def test_the_bugs_that_the_project_began_with_are_in_the_catalogue():
    sources = {file.fault.source for file in catalogue().values()}
    assert all(any(source.startswith(seed) for source in sources) for seed in SEEDS_DOCUMENTS)


def test_engine_faults_meet_the_baseline_tests_on_a_cpu_only():
    """What they show there they show on a GPU, whose time is dear."""
    ordered: list[Batch] = []

    def served(orders: Batch) -> Iterator[TaskResult]:
        ordered.append(orders)
        return survived(orders)

    early = [catalogue()["draft-positions-advanced-early"]]
    for device in ("cpu", "cuda"):
        run_faults(early, seeds=[0], examples=2, device=device, baseline=True, serve=served)
    assert [[task.baseline for task in orders.tasks] for orders in ordered] == [[True, True], [False, False]]
    assert [len(orders.baseline) for orders in ordered] == [2, 0]
