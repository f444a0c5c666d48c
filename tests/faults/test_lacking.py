"""Scripts that write checkpoints say in a sentence which package they need."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import draftproof.faults

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ("faults/engine_checkpoints.py", "faults/tiny_checkpoints.py", "examples/train_tiny.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_transformers_it_is_wrong_usage(script: str, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "draftproof.faults.tiny_checkpoints", raising=False)
    monkeypatch.delattr(draftproof.faults, "tiny_checkpoints", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert ended.value.code == 2
    told = "error: this script needs transformers, which is not installed here: pip install transformers\n"
    assert capsys.readouterr().err == told
