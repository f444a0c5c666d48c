"""No command is green by accident: its exit code is what it said at its end, whatever a subject does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof.cli import drafts
from draftproof.cli.app import run
from draftproof.harness import replay as replays
from draftproof.harness.replay import replay, solve_again
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.harness.workers.pool import Pool, WorkerStartError
from draftproof.properties.formats.case import encode
from draftproof.properties.values.script import steering
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import EXIT_CODES, Outcome
from draftproof.reference.run import ReferenceSubject
from tests.harness.ending_subjects import Copying
from tests.harness.subjects import Altered, as_it_is
from tests.named import named
from tests.properties.evidence import STATIC

ROOT = Path(__file__).parents[2]
SCENARIO = named("eagle_padded")
SUBJECTS = "tests.harness.ending_subjects"


def ended(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the repository's root."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cases") / "scenario.json"
    path.write_text(encode(SCENARIO))
    return path


@pytest.fixture(autouse=True)
def generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a check would run is no matter here: a small scenario says as much as a large one."""
    monkeypatch.setattr(drafts, "generated", lambda *_: iter([SCENARIO]))


INTERRUPTED_IN_A_COLLECTION = """
import gc, os, signal, time
from draftproof.process import leave, run_apart

def collected(*_):
    gc.callbacks.remove(collected)
    os.kill(os.getpid(), signal.SIGINT)

def command():
    gc.callbacks.append(collected)
    try:
        gc.collect()
        time.sleep(60)
    except KeyboardInterrupt:
        return 2
    return 0

leave(run_apart(command))
"""


def test_an_interrupt_while_garbage_is_collected_is_none_the_less_one():
    done = ended(INTERRUPTED_IN_A_COLLECTION)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("lambda: 0", 0, ""),
        ("lambda: 125", 125, ""),
        ("lambda: os._exit(0)", 3, "CRASH: the process of the command ended (exit 0) before there was a verdict"),
        ("lambda: os.kill(os.getpid(), 11)", 3, "CRASH: the process of the command ended (SIGSEGV) before"),
        ("lambda: 0 * os.fork() or os._exit(0)", 3, "ended (exit 0)"),
        ("lambda: atexit.register(os._exit, 0) and 1", 1, ""),
        ("lambda: print('all of it') or 4", 4, ""),
    ],
)
def test_only_what_a_command_says_is_its_exit_code(command: str, code: int, message: str):
    done = ended(f"import atexit, os; from draftproof.process import leave, run_apart; leave(run_apart({command}))")
    assert (done.returncode, "all of it" in done.stdout) == (code, "all of it" in command)
    assert message in done.stderr
    assert bool(message) == bool(done.stderr)


def test_a_command_that_somebody_stops_is_interrupted_and_did_not_crash():
    stopped = "lambda: os.kill(os.getppid(), 15) or time.sleep(60)"
    done = ended(f"import os, time; from draftproof.process import leave, run_apart; leave(run_apart({stopped}))")
    assert (done.returncode, done.stderr) == (2, "error: interrupted by SIGTERM before there was a verdict\n")


@pytest.mark.parametrize("way", ["raise KeyboardInterrupt", "return 130"])
def test_a_command_that_ctrl_c_ends_says_so(way: str):
    """Versions of typer raise, or return a code of their own."""
    program = f"""
from draftproof.cli import app
def ended(**_):
    {way}
app._command = lambda: ended
raise SystemExit(app.run([]))
"""
    done = ended(program)
    assert (done.returncode, done.stderr) == (2, "error: interrupted before there was a verdict\n")


def test_the_crash_of_a_command_is_that_of_a_subject():
    from draftproof.process import CRASHED

    assert EXIT_CODES[Outcome.CRASH] == CRASHED


@pytest.mark.parametrize(
    ("subject", "says"), [("Ending", "before there was a verdict"), ("EndingLater", "page 9 is out of range")]
)
def test_a_subject_that_ends_the_process_is_a_crash_of_replay(case: Path, subject: str, says: str):
    arguments = ["replay", str(case), "--subject", f"{SUBJECTS}:{subject}"]
    done = ended(f"from draftproof.cli import main; main({arguments})")
    assert done.returncode == 3
    assert says in done.stdout + done.stderr


def test_an_engine_that_ends_the_process_is_a_crash_of_check():
    done = ended(
        "import ctypes\n"
        "from draftproof.cli import drafts, main\n"
        "from draftproof.engine.subject import EngineSubject\n"
        "EngineSubject.run = lambda *_: ctypes.CDLL(None)._exit(0)\n"
        "from tests.named import named\n"
        "drafts.generated = lambda *_: iter([named('eagle_padded')])\n"
        "main(['check', '--draft', 'eagle', '--examples', '1', '--contract', 'draft.positions'])"
    )
    assert done.returncode == 3
    assert "before there was a verdict" in done.stderr


@pytest.mark.parametrize(
    ("factory", "raised"),
    [("exits", "SystemExit: 0"), ("exits_as_a_command", "Exit"), ("exits_at_once", r"SystemExit: os._exit(0)")],
)
def test_a_factory_that_leaves_is_an_error(case: Path, factory: str, raised: str, capsys):
    assert run(["replay", str(case), "--subject", f"{SUBJECTS}:{factory}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"error: invalid subject '{SUBJECTS}:{factory}': expected one that can be made, not {raised}" in line


@pytest.mark.usefixtures("anew")
def test_a_worker_of_a_factory_that_leaves_does_not_start(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    spec = SubjectSpec(subject=SubjectChoice(name=f"{SUBJECTS}:exits"))
    with (
        Pool(spec, 1, tmp_path, deadline=60) as pool,
        pytest.raises(WorkerStartError, match=r"expected one that can be made, not SystemExit: 0"),
    ):
        pool.run([Order(number=0, scenario=SCENARIO)])


def test_a_channel_that_is_declared_and_never_observed_is_named_by_replay(case: Path, capsys):
    assert run(["replay", str(case), "--subject", f"{SUBJECTS}:Mute"]) == 3
    assert "the trace has no observation of accept.correct_len, which its subject declares" in capsys.readouterr().out


def test_a_subject_that_copies_the_script_fails(case: Path, capsys):
    """It used to pass: the answers were in what it is given."""
    assert run(["replay", str(case), "--subject", f"{SUBJECTS}:Copying"]) == 1
    assert "FAIL output.lossless" in capsys.readouterr().out
    known = solve_again(STATIC, None, "a case")
    assert all(one.value for one in Copying().run(STATIC, known.script).observations)
    for told, given in zip(known.script.requests, steering(known.script).requests, strict=True):
        assert [one.forced for one in given.rounds] == [one.forced for one in told.rounds]
        assert {given.tokens, *(one.emitted for one in given.rounds)} == {()}


def test_a_replay_that_reaches_no_minimum_is_inconclusive(monkeypatch):
    known = solve_again(SCENARIO, None, "a case")
    assert replay(Altered(as_it_is), known, "a case").report.verdict is Outcome.PASS
    monkeypatch.setattr(replays, "counts", lambda _ran: {})
    assert replay(ReferenceSubject(), known, "a case").report.verdict is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("at", ["channels", "close"])
def test_a_subject_that_leaves_in_green_ends_no_command_so(at: str, case: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--subject", f"{SUBJECTS}:Leaving", "--set", f"at={at}"]
    assert run(["check", "--examples", "1", "--draft", "eagle", "--contract", "output.lossless", *options]) == 3
    capsys.readouterr()
    assert run(["replay", str(case), *options]) == 3
    assert "CRASH" in "".join(capsys.readouterr())
    assert run(["check", "--help"]) == 0


@pytest.mark.parametrize("command", ["check", "replay", "doctor"])
def test_a_subject_that_raises_when_it_is_closed_is_a_crash_of_it(
    command: str, case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "report.json"
    check = ["--examples", "1", "--draft", "eagle", "--contract", "output.lossless", "--json", str(file)]
    given = {"check": check, "replay": [str(case)], "doctor": []}[command]
    assert run([command, *given, "--subject", f"{SUBJECTS}:Unclosed"]) == 3
    told = " ".join("".join(capsys.readouterr()).split())
    assert "IndexError: page 9 is out of range" in told
    assert "in close()" in told
    if command == "check":
        found = {one["name"]: one["verdict"] for one in json.loads(file.read_text())["contracts"]}
        assert (found["runs.close"], found["runs"]) == ("CRASH", "PASS")


@pytest.mark.parametrize(
    ("command", "by"), [("doctor", "exit"), ("fuzz", "_exit"), ("explain", "exit"), ("lab bisect parts", "_exit")]
)
def test_a_subject_that_leaves_when_it_is_asked_what_it_can_run_is_a_crash(
    command: str, by: str, case: Path, tmp_path: Path
):
    where = {"doctor": [], "fuzz": ["--time", "9s", "--run", str(tmp_path / "run")]}.get(command, [str(case)])
    done = ended(
        "from draftproof.cli import main\n"
        f"main({[*command.split(), *where, '--subject', f'{SUBJECTS}:Unlimited', '--set', f'by={by}']})"
    )
    assert done.returncode == 3
    assert done.stderr.startswith("CRASH: ")


@pytest.mark.parametrize("draft", [(), ("--draft", "ngram"), ("--draft", "all")])
def test_limits_that_cannot_be_are_bad_input(draft: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert run(["check", "--examples", "1", *draft, "--subject", f"{SUBJECTS}:Misnamed"]) == 2
    told = "error: limits: invalid drafts[0] 'ngrams': expected one of dflash, eagle, eagle3, mtp, ngram, standalone"
    assert capsys.readouterr().err.splitlines()[-1] == told


def test_limits_that_change_are_refused(capsys: pytest.CaptureFixture[str]):
    options = ["--contract", "output.lossless", "--subject", f"{SUBJECTS}:Wavering"]
    assert run(["check", "--examples", "1", "--draft", "eagle", *options]) == 2
    assert "invalid limits of Wavering: expected the same throughout a check" in capsys.readouterr().err
