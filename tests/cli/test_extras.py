"""Extras: a plain installation runs without their packages, and says what to install where one is asked for."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from draftproof.cli.app import run
from draftproof.properties.lib import extras
from tests.warm import Warm

INSIDE = (
    "draftproof.harness.cluster",
    "draftproof.faults.on_nodes",
    "draftproof.fuzz.releases",
    "draftproof.reference.audit",
)


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """What extras need is not here."""
    find = importlib.util.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in extras.NEEDED.values() else find(name))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fuzz", "--run", "RUN", "--cluster", "auto"], "invalid --cluster 'auto': expected ray to be installed"),
        (["faults", "run", "--cluster", "auto"], "invalid --cluster 'auto': expected ray to be installed"),
        (
            ["lab", "releases", "--package", "sglang", "--versions", "0.5.9"],
            "invalid --package 'sglang': expected packaging to be installed",
        ),
        (
            ["lab", "bisect", "releases", "--package", "sglang", "--good", "1", "--bad", "2", "CASE"],
            "invalid --package 'sglang': expected packaging to be installed",
        ),
        (
            ["lab", "kernels", "check", "--impl", "sglang", "--wheel", "WHEEL"],
            "invalid --wheel: expected packaging to be installed",
        ),
    ],
)
def test_what_to_install_is_said(words, said, tmp_path, capsys):
    files = {name: tmp_path / name.lower() for name in ("RUN", "CASE", "WHEEL")}
    files["CASE"].write_text("{}")
    files["WHEEL"].write_bytes(b"")
    assert run([str(files.get(word, word)) for word in words]) == 2
    told = " ".join(capsys.readouterr().err.split())
    packages = "'ray[client]'" if "--cluster" in words else "packaging"
    assert f"{said}, as by pip install {packages}" in told


def test_the_rest_runs_without(warm: Warm):
    """In a process of its own, where importing their packages fails."""
    code = (
        "import sys; sys.modules.update(packaging=None, ray=None); from draftproof.cli.app import run;"
        " code = run(['check', '--draft', 'ngram', '--examples', '1', '--contract', 'variant']);"
        f" print(code, [name for name in sys.modules if name.startswith({INSIDE})])"
    )
    done = warm.run([sys.executable, "-P", "-c", code])
    assert done.stdout.splitlines()[-1] == "125 []", "one scenario is too little for a verdict: it has one variant"
