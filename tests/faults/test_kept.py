"""A run over faults that is cut prints what there is, and the same command goes on with what is missing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from draftproof.cli import inputs
from draftproof.cli.app import run
from draftproof.faults.catalogue import Fault, FaultFile, catalogue, read_sources
from draftproof.faults.kept import KeptResults, KeptResultsError, RunSettings, beside, described
from draftproof.faults.matrix import MadeWith
from draftproof.faults.orders import CLEAN, Batch, TaskResult
from draftproof.faults.run import InterruptedRunError, run_faults
from draftproof.faults.trial import FaultOutcome, SeedResult
from draftproof.properties.values.verdict import Outcome, Verdict
from tests.structure import ROOT

EARLY = catalogue()["draft-positions-advanced-early"]
NAMES = ("a", "b", "c")
SETTINGS = RunSettings(seed=4, seeds=2, examples=1, device="cpu")


def renamed(name: str, text: str = EARLY.text) -> FaultFile:
    return FaultFile(fault=Fault(id=name), text=text, path="")


class Server:
    """Serves faults that nobody notices, and is interrupted after `left` results; `asked`: the tasks that it got."""

    def __init__(self, left: int = 1 << 30) -> None:
        self.left, self.asked = left, list[str]()

    def run(self, batch: Batch) -> Iterator[TaskResult]:
        for task in batch.tasks:
            self.asked.append(task.id)
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            seeds = tuple(SeedResult(seed=seed, outcome=FaultOutcome.SURVIVED) for seed in batch.seeds)
            yield TaskResult(id=task.id, seeds=seeds, seconds=time.monotonic())


def tried(path: Path, server: Server, files: list[FaultFile] | None = None, **more: Any):
    files = files or [renamed(name) for name in NAMES]
    with KeptResults(path, SETTINGS, [file.fault.id for file in files]) as kept:
        return run_faults(files, [4, 5], examples=1, serve=server.run, keep=kept.serve, parallel=1, **more)


@pytest.fixture(scope="module")
def first_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run that had results of two faults, and not yet of their clean twin."""
    path = tmp_path_factory.mktemp("cut") / "results.jsonl"
    with pytest.raises(InterruptedRunError):
        tried(path, Server(left=2))
    return path


@pytest.fixture
def cut(first_results: Path, tmp_path: Path) -> Path:
    """A copy of that file."""
    return Path(shutil.copy(first_results, tmp_path))


def kept_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["result"] for line in path.read_text().splitlines()[1:]]


def test_an_interrupted_run_says_what_it_has(tmp_path: Path):
    with pytest.raises(InterruptedRunError, match=r"^interrupted: 2 of 3 faults ran$") as end:
        tried(tmp_path / "results.jsonl", Server(left=2))
    no_twin = Outcome.INCONCLUSIVE
    assert [(one.id, one.clean_twin) for one in end.value.report.faults] == [("a", no_twin), ("b", no_twin)]
    assert end.value.report.totals.faults == 2
    assert end.value.report.verdict is Outcome.INCONCLUSIVE


def test_the_rest_runs_and_what_is_kept_does_not(cut: Path):
    before = kept_in(cut)
    server = Server()
    report = tried(cut, server)
    assert server.asked == ["c", CLEAN]
    assert [one.id for one in report.faults] == list(NAMES)
    assert {one.clean_twin for one in report.faults} == {Outcome.PASS}
    assert [one.seconds for one in report.faults[:2]] == [one["seconds"] for one in before]
    assert kept_in(cut)[:2] == before


def test_a_run_may_be_cut_at_every_result(tmp_path: Path):
    asked = []
    for _ in range(len(NAMES) + 1):
        server = Server(left=1)
        with pytest.raises(InterruptedRunError) if len(asked) < 2 * len(NAMES) else open(os.devnull):
            tried(tmp_path / "results.jsonl", server)
        asked += server.asked
    assert asked == ["a", "b", "b", "c", "c", CLEAN, CLEAN]


def test_without_its_clean_twin_nothing_passes(tmp_path: Path):
    """The twin runs last, so that faults have results before it has."""
    with pytest.raises(InterruptedRunError) as end:
        tried(tmp_path / "results.jsonl", Server(left=1))
    assert [(one.id, one.clean_twin) for one in end.value.report.faults] == [("a", Outcome.INCONCLUSIVE)]
    assert end.value.report.verdict is Outcome.INCONCLUSIVE


def test_a_fault_of_which_a_seed_is_missing_has_not_run(tmp_path: Path):
    """With places for several seeds each has a batch of its own."""
    done, path = threading.Event(), tmp_path / "results.jsonl"

    class First(Server):
        def run(self, batch: Batch) -> Iterator[TaskResult]:
            if batch.seeds == (4,):
                yield from super().run(batch)
                done.set()
            else:
                assert done.wait(60.0)
                raise KeyboardInterrupt

    server = First()
    with KeptResults(path, SETTINGS, ["a"]) as kept, pytest.raises(InterruptedRunError, match="0 of 1 faults"):
        run_faults([renamed("a")], [4, 5], examples=1, serve=server.run, keep=kept.serve, parallel=5)
    server = Server()
    with KeptResults(path, SETTINGS, ["a"]) as kept:
        report = run_faults([renamed("a")], [4, 5], examples=1, serve=server.run, keep=kept.serve, parallel=5)
    assert server.asked == ["a", CLEAN]
    assert len(report.faults[0].outcomes) == 2


def test_another_patch_of_the_same_name_runs_again(cut: Path):
    other = catalogue()["stop-tail-kept"].text
    server = Server()
    tried(cut, server, [renamed("a", other), renamed("b"), renamed("c")])
    assert server.asked == ["a", "c", CLEAN]


def test_more_faults_may_be_asked_for_but_none_left_out(cut: Path):
    with pytest.raises(
        KeptResultsError, match=r"^invalid choice of 2 faults: expected also a, of which .*results.jsonl"
    ):
        tried(cut, Server(), [renamed("b"), renamed("c")])
    server = Server()
    tried(cut, server, [renamed(name) for name in ("a", "b", "c", "d")])
    assert server.asked == ["c", "d", CLEAN]


def test_a_clean_twin_runs_again_beside_other_faults(tmp_path: Path):
    """They may need more than it ran; it is told what those met whose results are kept."""
    path, server = tmp_path / "results.jsonl", Server()
    met = list[tuple[int, ...]]()

    class Told(Server):
        def run(self, batch: Batch) -> Iterator[TaskResult]:
            met.append(batch.met)
            for one in super().run(batch):
                seeds = tuple(replace(seed, outcome=FaultOutcome.DETECTED, examples=1) for seed in one.seeds)
                yield replace(one, seeds=seeds)

    for count, left in ((2, 3), (3, 1)):
        files = [renamed(name) for name in NAMES[:count]]
        server = Told(left=left)
        with (
            KeptResults(path, SETTINGS, NAMES) as kept,
            pytest.raises(InterruptedRunError) if left == 1 else nullcontext(),
        ):
            run_faults(files, [4, 5], examples=1, serve=server.run, keep=kept.serve, parallel=1)
    assert (server.asked, met) == (["c", CLEAN], [(0, 0), (1, 1)])


OTHERS = {
    "seed": (7, "--seed 7: expected 4"),
    "seeds": (3, "--seeds 3: expected 2"),
    "examples": (9, "--examples 9: expected 1"),
    "device": ("cuda", "--device 'cuda': expected 'cpu'"),
    "baseline": (True, "--baseline true: expected false"),
    "model": (("/m (01)",), "--model /m (01): expected none"),
    "strategies": (SETTINGS.strategies + 1, f"version of the strategies {SETTINGS.strategies + 1}: expected"),
    "sources": ("0123", f"sources of Draftproof '0123': expected '{SETTINGS.sources}'"),
    "versions": ((MadeWith(package="torch", version="1"),), "versions torch 1: expected python 3."),
}


@pytest.mark.parametrize("field", RunSettings.__struct_fields__)
def test_results_of_another_run_are_refused_by_name(field: str, cut: Path):
    before = cut.read_bytes()
    value, said = OTHERS[field]
    with pytest.raises(KeptResultsError, match=f"^invalid {re.escape(said)}") as error:
        KeptResults(cut, replace(SETTINGS, **{field: value}), NAMES)
    assert f"as {cut} has it" in str(error.value)
    assert "remove that file to begin again, or give another --json" in str(error.value)
    assert cut.read_bytes() == before
    KeptResults(cut, SETTINGS, NAMES).__exit__()


def test_settings_of_a_file_without_results_do_not_count(tmp_path: Path):
    """As a kill leaves it before the first result."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(msgspec.json.encode(replace(SETTINGS, seed=99)) + b"\n")
    server = Server()
    tried(path, server)
    assert server.asked == [*NAMES, CLEAN]
    assert json.loads(path.read_text().splitlines()[0])["seed"] == SETTINGS.seed


def test_a_line_that_was_being_written_is_left_out(cut: Path):
    whole = cut.read_bytes()
    cut.write_bytes(whole[:-20])
    server = Server()
    tried(cut, server)
    assert server.asked == ["b", "c", CLEAN]
    assert [one["id"] for one in kept_in(cut)] == ["a", "b", "c", CLEAN]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [lines[0], b'{"key":3}', *lines[2:]], "line 2: invalid key 3: expected `str`"),
        (lambda lines: [lines[0], lines[1][:-9], *lines[2:]], "line 2: expected a JSON object, a kept result"),
        (lambda lines: [b'{"seed":1}', *lines[1:]], "line 1: invalid seeds, which is missing"),
        (lambda lines: [lines[0][:-1] + b',"era":1}', *lines[1:]], "line 1: invalid era 1, no field"),
        (lambda _lines: [b"my notes"], "is not what a `faults run` keeps its results in"),
    ],
)
def test_a_damaged_file_is_named_and_left_as_it_is(change: Callable[[list[bytes]], list[bytes]], said: str, cut: Path):
    lines = change(cut.read_bytes().splitlines())
    text = b"\n".join(lines) + (b"\n" if len(lines) > 1 else b"")
    cut.write_bytes(text)
    with pytest.raises(KeptResultsError, match=re.escape(said)) as error:
        KeptResults(cut, SETTINGS, NAMES)
    assert str(cut) in str(error.value)
    assert "remove it to begin again" in str(error.value)
    assert cut.read_bytes() == text


def test_one_run_at_a_time_has_the_file(cut: Path):
    with KeptResults(cut, SETTINGS, NAMES), pytest.raises(KeptResultsError, match=r"in use by another `faults run`"):
        KeptResults(cut, SETTINGS, NAMES)


def test_no_file_stays_without_results(tmp_path: Path):
    path = tmp_path / "new" / "results.jsonl"
    with KeptResults(path, SETTINGS, NAMES):
        assert path.is_file()
    assert not path.exists()


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, write = tmp_path / "results.jsonl", os.write
    with monkeypatch.context() as patch:
        # There is room for the first line, and for part of the others.
        patch.setattr(os, "write", lambda file, data: write(file, data if b'"key"' not in data else data[:30]))
        with pytest.raises(
            KeptResultsError, match=r"results.jsonl cannot be written: there is no room; .* same command"
        ):
            tried(path, Server())
    assert not path.exists() or b'"key"' not in path.read_bytes()
    server = Server()
    tried(path, server)
    assert server.asked == [*NAMES, CLEAN]


def test_a_checkpoint_is_told_by_its_files(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    before = described(str(tmp_path))
    assert before.startswith(f"{tmp_path.resolve()} (")
    assert described(str(tmp_path)) == before
    (tmp_path / "config.json").write_text("{ }")
    assert described(str(tmp_path)) != before


def test_results_go_when_the_report_is_there_and_not_before(tmp_path: Path, capsys):
    report, gone = Verdict(name="x", verdict=Outcome.PASS, scenarios=1), list[bool]()
    for path in ("/proc/none.json", str(tmp_path / "x.json")):
        with pytest.raises(inputs.Ended):
            inputs.finish(Path(path), report, report.verdict, then=lambda: gone.append(True))
        assert gone == [True] * (path != "/proc/none.json")


QUICK = ("stop-tail-kept", "pages-leak-on-finish")
SEED = 4
"""Both are noticed in the first scenario of listed.py."""
STEP = "self.scheduler.plan("


def command(out: Path, *more: str) -> list[str]:
    ids = [word for name in QUICK for word in ("--id", name)]
    return ["faults", "run", *ids, "--seed", str(SEED), "--seeds", "1", "--examples", "1", *more, "--json", str(out)]


def write_waiting(folder: Path) -> tuple[Path, Path]:
    """A patch that waits for as long as a file is there, and raises then; return both."""
    path, flag = "engine/engine.py", folder / "flag"
    line = next(one for one in read_sources()[path].splitlines() if STEP in one)
    new = ("        import os, time", f"        while os.path.exists({str(flag)!r}):", "            time.sleep(0.05)")
    patch = folder / "waits.fault"
    patch.write_text("\n".join((path, f"-{line}", *(f"+{one}" for one in new), "+        raise IndexError", "")))
    flag.touch()
    return patch, flag


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["ctrl-c", "sigterm", "kill"])
def test_a_command_that_is_cut_goes_on(number: signal.Signals, tmp_path: Path, capsys, shared_server):
    """The signal goes to the whole group, as from a terminal or `timeout`: workers must not die of it."""
    out = tmp_path / "out.json"
    patch, flag = write_waiting(tmp_path)
    words = command(out, "--patch", str(patch))
    program = (
        "import signal\nfrom draftproof.cli import main\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from draftproof.faults import run\nfrom tests.faults.listed import listed\nrun.generate = listed\n"
        f"main({words})"
    )
    started = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    kept = awaited(beside(out), started, {CLEAN, *QUICK})
    children = psutil.Process(started.pid).children(recursive=True)
    assert len(children) >= 3  # the fork server, the batch and the fault that waits
    assert started.pid not in {os.getpgid(child.pid) for child in children}
    os.killpg(started.pid, number)
    said, errors = started.communicate(timeout=60)
    assert psutil.wait_procs(children, timeout=20)[1] == []
    assert errors == ""
    assert not out.exists()
    assert {one["id"]: one for one in kept_in(beside(out))} == kept
    if number is signal.SIGKILL:
        assert (started.returncode, said) == (-number, "")
    else:
        assert started.returncode == 125
        found = f"{beside(out)} keeps all results so far. Go on: draftproof {' '.join(words[:6])}"
        assert f"INCONCLUSIVE: interrupted: 2 of 3 faults ran; {found}" in said
        assert all(re.search(rf"^{name} +detected", said, re.MULTILINE) for name in QUICK)
        assert "waits" not in said.partition("2 of 2 detected")[0]
    flag.unlink()
    assert run(words) == 0
    assert capsys.readouterr().err.splitlines() == [f"resumed: {beside(out)} has results of 2 of 3 faults"]
    rows = {row["id"]: row for row in json.loads(out.read_text())["faults"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        **dict.fromkeys(QUICK, "detected"),
        "waits": "crashed",
    }
    assert [rows[name]["seconds"] for name in QUICK] == [kept[name]["seconds"] for name in QUICK]
    assert not beside(out).exists()


def awaited(path: Path, started: subprocess.Popen[str], names: set[str]) -> dict[str, dict[str, Any]]:
    """The results in the file, by task, once these are there."""
    end = time.monotonic() + 120
    while time.monotonic() < end and started.poll() is None:
        text = path.read_text() if path.exists() else ""
        if text.count("\n") == 1 + len(names) and text.endswith("\n"):
            found = {one["id"]: one for one in kept_in(path)}
            assert found.keys() == names
            return found
        time.sleep(0.02)
    raise AssertionError("there were no such results")


def test_another_command_with_the_same_file_is_refused(tmp_path: Path, capsys):
    out = tmp_path / "out.json"
    server = Server(left=2)
    settings = replace(SETTINGS, seed=SEED, seeds=1)
    files = [catalogue()[QUICK[0]]]
    with KeptResults(beside(out), settings, QUICK) as kept:
        run_faults(files, [SEED], examples=1, serve=server.run, keep=kept.serve)
    assert run(command(out, "--seeds", "2")) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: invalid --seeds 2: expected 1, as {beside(out)} has it")
    assert beside(out).exists()
    assert not out.exists()
