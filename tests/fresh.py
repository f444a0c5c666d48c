"""Install a built Draftproof in an environment of its own, and run what somebody new runs, in a folder of its own.

    python -m tests.fresh dist/draftproof-0.1.0-py3-none-any.whl [--torch-index URL] [--low] [--examples N]

Nothing of this repository is on the path of what runs. Each command must end with its code and say what it should.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FAULT = "draft-positions-advanced-early"
_DEADLINE = 1800.0


class Tried(NamedTuple):
    """A command: its words, the codes that it may end with, a pattern of what it prints, files that it leaves."""

    words: tuple[str, ...]
    codes: tuple[int, ...]
    says: str
    leaves: tuple[str, ...] = ()


def commands(examples: int | None) -> tuple[Tried, ...]:
    """Return what is tried; a check of fewer than the default number of scenarios may be INCONCLUSIVE."""
    few = () if examples is None else ("--examples", str(examples))
    campaign = ("--fault", FAULT, "--draft", "eagle", "--seed", "1", "--workers", "1", "--examples", "6")
    case, page = ".draftproof/demo/shrunk.json", ".draftproof/demo/report.html"
    return (
        Tried(("--version",), (0,), r"draftproof \d+\.\d+\.\d+"),
        Tried(("doctor",), (0,), r"torch +2\."),
        Tried(("demo",), (0,), "FAIL draft.positions", (case, page)),
        Tried(("replay", case, "--fault", FAULT), (1,), "one ahead"),
        Tried(
            ("check", *few, "--json", "check.json"), (0,) if examples is None else (0, 125), "Again:", ("check.json",)
        ),
        Tried(("faults", "list"), (0,), FAULT),
        Tried(("faults", "show", FAULT), (0,), r"(?m)^\+"),
        Tried(("faults", "run", "--id", FAULT, "--seeds", "1", "--examples", "10"), (0,), "detected"),
        Tried(("fuzz", "--run", "campaign", *campaign), (1,), "FAIL"),
        Tried(("report", "campaign", "--out", "report.html"), (0,), "wrote report.html", ("report.html",)),
        Tried(("init", "--engine", "mine", "--draft", "ngram"), (0,), "wrote mine_subject.py", ("mine_subject.py",)),
        Tried(
            ("lab", "ci", "--run", "check --draft medusa"),
            (2,),
            "invalid --draft 'medusa'",
            (".draftproof/ci/badge.json",),
        ),
    )


def failures(python: Path, tried: Iterable[Tried], folder: Path) -> list[str]:
    """Run commands one after another in a folder; return what went otherwise than it should, with what was printed."""
    found = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    for one in tried:
        started = time.monotonic()
        ran = subprocess.run(
            [python.with_name("draftproof"), *one.words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
        wrong = [f"exit code {ran.returncode}, expected {one.codes}"] if ran.returncode not in one.codes else []
        wrong += [] if re.search(one.says, ran.stdout) else [f"expected {one.says!r} in what it prints"]
        wrong += [f"expected the file {path}" for path in one.leaves if not (folder / path).is_file()]
        words = " ".join(one.words)
        print(f"{'FAILED' if wrong else 'ok':6} {time.monotonic() - started:6.1f} s  draftproof {words}", flush=True)
        found += [f"draftproof {words}: {'; '.join(wrong)}\n{ran.stdout}"] if wrong else []
    return found


def lowest() -> list[str]:
    """Return the dependencies of pyproject.toml at their lowest versions, as pip takes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [one.replace(">=", "==") for one in project["dependencies"]]


def installed(folder: Path, wanted: Sequence[str], index: str = "") -> Path:
    """Make an environment, in which torch comes first, from an index of its own if one is named; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    pip = (str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")
    torch = [one for one in wanted if re.match(r"torch\b", one)] or ["torch"]
    subprocess.run([*pip, *torch, *(("--index-url", index) if index else ())], check=True)
    subprocess.run([*pip, *wanted], check=True)
    return python


def versions_in(python: Path) -> str:
    """Return the versions of Python and of what is said to run at both ends, in that environment."""
    code = "import sys, importlib.metadata as m; print(sys.version.split()[0], *map(m.version, sys.argv[1:]))"
    names = ("torch", "hypothesis", "numpy")
    ran = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True)
    return ", ".join(map(" ".join, zip(("Python", *names), ran.stdout.split(), strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fresh", description="Try a built Draftproof by itself.")
    parser.add_argument("built", type=Path, help="a wheel, or an sdist")
    parser.add_argument("--torch-index", default="", help="where pip finds torch (default: its usual index)")
    parser.add_argument("--low", action="store_true", help="with the lowest versions that pyproject.toml allows")
    parser.add_argument("--examples", type=int, help="scenarios of the check (default: those of a whole one)")
    given = parser.parse_args()
    if not given.built.is_file():
        parser.error(f"invalid built '{given.built}': expected a wheel or an sdist that is there")
    wanted = [*(lowest() if given.low else ()), str(given.built.resolve())]
    with tempfile.TemporaryDirectory(prefix="draftproof-fresh-") as folder:
        python = installed(Path(folder, "environment"), wanted, given.torch_index)
        place = Path(folder, "elsewhere")
        place.mkdir()
        tried = commands(given.examples)
        found = failures(python, tried, place)
        versions = versions_in(python)
        print(f"{len(tried) - len(found)} of {len(tried)} commands did what they should: {versions}")
        if found:
            sys.exit("\n\n".join(found))


if __name__ == "__main__":
    main()
