"""Releases that pip really installs: a package made for this test, whose later releases are wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import zipfile
from pathlib import Path

import pytest

import draftproof
from draftproof.cli.app import run
from draftproof.fuzz.releases import environment, packages
from draftproof.fuzz.releases.environment import NotInstalledError, python_of
from draftproof.fuzz.releases.packages import Recipe
from draftproof.properties.formats.case import encode
from draftproof.properties.values.limits import Limits
from draftproof.reference.solved import solved
from tests.named import named

ENGINE = '''
"""An engine that knows the answers; in release 1.2 it loses the last token of every round."""
import json
import draftproof
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.limits import Limits

class Engine(Subject):
    name = "told"
    limits = Limits(steering="none", persistent=True, variants=())
    def __init__(self, answers):
        self.answers = json.load(open(answers))
    def channels(self, scenario):
        return frozenset({{"accept.emitted"}})
    def run(self, scenario, script):
        texts = [tuple(text) for text in self.answers]
        rounds = [(Key(i, r), (t + {wrong},)) for i, text in enumerate(texts) for r, t in enumerate(text)]
        return Trace(self.name, self.channels(scenario), tuple(Observation("accept.emitted", k, v) for k, v in rounds))
'''


def wheel(folder: Path, version: str, wrong: int, requires: str = "") -> None:
    name = f"told_engine-{version}"
    metadata = f"Metadata-Version: 2.1\nName: told-engine\nVersion: {version}\n"
    files = {
        "told_engine.py": ENGINE.format(wrong=wrong),
        f"{name}.dist-info/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{name}.dist-info/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as out:
        for path, text in {**files, f"{name}.dist-info/RECORD": record}.items():
            out.writestr(path, text)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all that pip sees; the packages of our side lie on the subject's path."""
    wheels, path = tmp_path / "wheels", tmp_path / "path"
    wheels.mkdir()
    path.mkdir()
    for version, wrong in (("1.1", 0), ("1.2", 1)):
        wheel(wheels, version, wrong, requires="no-codec" if version == "1.1" else "")
    for name in ("numpy", "msgspec"):
        spec = importlib.util.find_spec(name)
        for found in Path(spec.origin).parent.parent.glob(f"{name}*"):
            os.symlink(found, path / found.name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for other in ("PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(path))
    monkeypatch.setattr(environment, "_OURS", ())
    monkeypatch.setitem(packages.RECIPES, "told-engine", Recipe(subject="told_engine:Engine", without=("no-codec",)))
    return tmp_path


def test_a_table_and_a_bisection_over_installed_releases(index, capsys):
    scenario = draftproof.fit(named("eagle_padded"), Limits(steering="none", variants=()))
    known = solved(scenario)
    answers, case, out = index / "answers.json", index / "case.json", index / "out.json"
    answers.write_text(json.dumps([request.tokens for request in known.script.requests]))
    case.write_text(encode(scenario))
    common = ("--package", "told-engine", "--environments", str(index / "envs"), "--set", f"answers={answers}")
    assert run(["lab", "releases", *common, "--versions", "1.1,1.2", str(case), "--json", str(out)]) == 1
    table = json.loads(out.read_text())
    verdicts = {row["version"]: {one["name"]: one["verdict"] for one in row["contracts"]} for row in table["releases"]}
    assert [row["runnable"] for row in table["releases"]] == [True, True]
    assert verdicts["1.1"]["runs"] == verdicts["1.1"]["output.lossless"] == "PASS"
    assert verdicts["1.2"]["output.lossless"] == "FAIL"
    again = next(line for line in capsys.readouterr().out.splitlines() if "Again: " in line)
    assert f"--set answers={answers} --environments {index / 'envs'}" in again
    made = (index / "envs" / "told-engine-1.1" / "installed").stat().st_mtime_ns
    ends = ("--good", "1.1", "--bad", "1.2")
    assert run(["lab", "bisect", "releases", *common, *ends, str(case), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["candidates"] == ["1.2"]
    assert "The first bad release (2 of 2 releases tested): told-engine 1.2" in capsys.readouterr().out
    assert (index / "envs" / "told-engine-1.1" / "installed").stat().st_mtime_ns == made, "made once, and kept"


def test_a_release_that_cannot_be_installed_says_why_and_is_tried_again(index):
    with pytest.raises(NotInstalledError, match=r"told-engine==9.9 cannot be installed: No matching distribution"):
        python_of("told-engine", "9.9", Recipe(), index / "envs")
    wheel(index / "wheels", "9.9", 0)
    assert python_of("told-engine", "9.9", Recipe(), index / "envs").exists()
