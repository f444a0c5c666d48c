"""Progress where there is no terminal: lines on stderr, now and then, and stdout line by line."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.cli import releases as command
from draftproof.cli import screen
from draftproof.engine.subject import EngineSubject
from draftproof.fuzz.releases import trial
from draftproof.fuzz.releases.packages import Recipe
from draftproof.fuzz.releases.trial import Releases
from tests.named import named


def test_a_bar_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    with screen.progress("scenarios", 3) as advance:
        advance()
    assert not capsys.readouterr().err, "what is quick needs no line"
    monkeypatch.setattr(screen, "_EVERY", 0.0)
    with screen.progress("scenarios", 3) as advance:
        advance("anything")
        advance()
    assert capsys.readouterr().err.splitlines() == ["scenarios: 1 of 3, 0 s", "scenarios: 2 of 3, 0 s"]


def test_what_takes_long_says_what_it_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(screen, "_EVERY", 0.02)
    with screen.ticking("decoding") as doing:
        time.sleep(0.1)
        doing("playing")
        time.sleep(0.1)
    told = capsys.readouterr().err.splitlines()
    assert {line.split(",")[0] for line in told} == {"decoding", "playing"}
    time.sleep(0.05)
    assert not capsys.readouterr().err


def test_a_line_is_there_at_once_for_whoever_reads_a_pipe():
    code = "import os; from draftproof.cli.screen import line; line('begins'); os._exit(0)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "begins\n"


def test_every_release_is_told_as_it_begins(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(trial, "RemoteSubject", lambda _choice, search: EngineSubject())
    monkeypatch.setattr(trial, "python_of", lambda *_: Path("python"))
    doing: list[str] = []
    known = Releases("engine", Recipe(subject="engine"), Path(), 60.0)
    with command._watched(known) as seen:
        replace(seen, watch=doing.append).answers("1.2", [named("eagle_padded"), named("hybrid_replay")])
    assert capsys.readouterr().err == "1.2: begins\n"
    assert doing == [
        "1.2: its environment is made ready",
        "1.2: 0 of 2 scenarios done",
        "1.2: 1 of 2 scenarios done",
    ]
