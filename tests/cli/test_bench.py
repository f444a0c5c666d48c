"""`draftproof lab bench compare`: exit codes, what it prints, and wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.cli.app import run
from draftproof.properties.formats.measurement import append
from tests.harness.test_slower import PLAIN, turns


def kept(path: Path, pairs: int, slower: float = 0.0) -> Path:
    for one in turns(1, pairs, slower):
        append(path, one)
    return path


@pytest.mark.parametrize(("pairs", "slower", "code"), [(12, 0.0, 0), (12, 0.3, 1), (2, 0.3, 125)])
def test_the_exit_code_says_what_was_found(pairs: int, slower: float, code: int, tmp_path: Path, capsys):
    path, written = kept(tmp_path / "history.jsonl", pairs, slower), tmp_path / "out.json"
    assert run(["lab", "bench", "compare", str(path), "--json", str(written)]) == code
    out = capsys.readouterr().out
    assert ("SLOWER" in out) == (code == 1)
    assert ("too few pairs" in out) == (code == 125)
    assert "equal code alarms in 1 % of comparisons at most" in out
    found = json.loads(written.read_text())
    assert (found["base"], found["new"], len(found["measures"])) == ("base", "new", 4)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--base", "bass"], "invalid --base 'bass': expected base, new; did you mean base?"),
        (["--new", "none"], "invalid --new 'none': expected base, new"),
        (["--base", "new"], "invalid --base 'new': expected another label than that of --new"),
    ],
)
def test_labels_that_are_not_there(options: list[str], told: str, tmp_path: Path, capsys):
    assert run(["lab", "bench", "compare", str(kept(tmp_path / "history.jsonl", 3)), *options]) == 2
    assert told in capsys.readouterr().err


def test_histories_that_say_nothing(tmp_path: Path, capsys):
    path = tmp_path / "history.jsonl"
    assert run(["lab", "bench", "compare", str(path)]) == 2
    assert "it cannot be read: No such file or directory" in capsys.readouterr().err
    append(path, PLAIN)
    assert run(["lab", "bench", "compare", str(path)]) == 2
    assert "expected runs of two labels, not of base" in capsys.readouterr().err
    path.write_text("nothing\n")
    assert run(["lab", "bench", "compare", str(path)]) == 2
    assert "line 1 is no JSON" in capsys.readouterr().err
