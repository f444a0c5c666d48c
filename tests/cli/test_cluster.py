"""`--cluster` as a user meets it: what is wrong with an address is one line, and nothing has happened by then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from draftproof.cli.app import run
from tests.warm import Warm

WRONG = "error: invalid --cluster 'here': expected ray://HOST:PORT, HOST:PORT or auto"


@pytest.mark.parametrize("command", [["fuzz", "--run", "run"], ["faults", "run"]], ids=["fuzz", "faults"])
def test_an_address_is_looked_at_first(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert run([*command, "--cluster", "here"]) == 2
    assert capsys.readouterr().err.splitlines() == [WRONG]
    assert list(tmp_path.iterdir()) == []


def test_the_mutation_score_says_the_same(warm: Warm):
    done = warm.run([sys.executable, "-P", "-m", "draftproof.faults.mutation", "--cluster", "here"])
    assert (done.returncode, done.stderr.splitlines()) == (2, [WRONG])
