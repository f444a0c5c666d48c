"""Parts of a released SGLang, whose wheel pip fetches: what the table says, and a mistake that must be found.

DRAFTPROOF_SGLANG=0.5.23 pytest tests/subjects/test_sglang_wheel.py
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest

from draftproof.fuzz.releases.packages import RECIPES
from draftproof.fuzz.releases.plans import Plan
from draftproof.fuzz.releases.table import parted_table
from draftproof.fuzz.releases.trial import Releases
from draftproof.fuzz.releases.wheels import unpacked_wheel
from draftproof.harness.lockstep import evidence
from draftproof.harness.remote import RemoteSubject
from draftproof.properties.fit import fitted
from draftproof.properties.judge import judge
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.subjects.sglang.draft_decode import DraftDecode
from draftproof.subjects.sglang.release import SglangRelease
from draftproof.subjects.wheels.modules import WheelImportError
from tests.engines_gpu import MISTAKEN, OTHER
from tests.named import named

RELEASE = os.environ.get("DRAFTPROOF_SGLANG", "")
FOUND = Path(__file__).resolve().parents[2] / "docs/found.md"
WORKER = "sglang/srt/speculative/eagle_worker_v2.py"
pytestmark = pytest.mark.skipif(not RELEASE, reason="needs a release of SGLang: name it in DRAFTPROOF_SGLANG")


def in_the_table(version: str) -> dict[str, str]:
    """Return the verdict of each part in docs/found.md, of the newest release there if this is a newer one."""
    rows = [line.strip("| ").split(" | ") for line in FOUND.read_text(encoding="utf-8").splitlines()]
    (head,) = (row for row in rows if row[0] == "part" and "0.5.9" in row)
    column = head.index(version) if version in head else -1
    return {row[0]: row[column] for row in rows if len(row) == len(head)}


def test_no_part_fails_that_passes_in_the_table(tmp_path):
    parts = RECIPES["sglang"].parts
    releases = Releases(package="sglang", recipe=RECIPES["sglang"], folder=tmp_path, timeout=300.0)
    (row,) = parted_table(releases, [RELEASE], Plan(parts=parts, seed=21, count=2)).releases
    assert row.runnable, row.reason
    known = in_the_table(RELEASE)
    assert {part.name for part in parts} <= known.keys()
    bad = {one.part: one.reason or one.first for one in row.contracts if one.verdict in ("FAIL", "CRASH", "HANG")}
    assert {part: why for part, why in bad.items() if known[part] not in ("FAIL", "CRASH")} == {}


def worker_with(folder: Path, old: str, new: str) -> str:
    """Return a copy of the unpacked release, with a text of its worker replaced."""
    place = folder / f"sglang-{RELEASE}"
    shutil.copytree(unpacked_wheel("sglang", RELEASE, None), place)
    text = (place / WORKER).read_text(encoding="utf-8")
    assert old in text, f"{WORKER} of {RELEASE} has not: {old}"
    (place / WORKER).write_text(text.replace(old, new), encoding="utf-8")
    return str(place)


def test_a_mistake_is_found(tmp_path):
    place = worker_with(tmp_path, "forward_batch.positions.add_(1)", "forward_batch.positions.add_(2)")
    choice = SubjectChoice(name="sglang", python=sys.executable, settings={"part": "draft", "wheel": place})
    with closing(RemoteSubject(choice)) as subject:
        scenarios = fitted(map(named, ("eagle_padded", "five_in_graphs")), subject.limits)
        firsts = [judge(evidence(subject, scenario)).first for scenario in scenarios]
    assert "draft.positions" in [first.contract for first in firsts if first]


def test_a_module_that_cannot_be_imported_is_said(tmp_path):
    place = worker_with(tmp_path, "\nclass EAGLEWorkerV2(", "\nraise OSError('no device')\nclass EAGLEWorkerV2(")
    try:
        with pytest.raises(WheelImportError, match="eagle_worker_v2 cannot be imported whole: OSError: no device"):
            DraftDecode(place)
    finally:
        SglangRelease.close_open()


@pytest.mark.skipif(RELEASE != MISTAKEN, reason=f"mistakes are patched into {MISTAKEN}")
def test_mistakes_of_a_live_engine_patch_what_is_there(monkeypatch):
    monkeypatch.syspath_prepend(str(OTHER))
    from mistaken_sglang import MISTAKES

    place = Path(unpacked_wheel("sglang", RELEASE, None))
    for name, one in MISTAKES.items():
        file = place / f"{one.module.replace('.', '/')}.py"
        sources = [file, file.with_name("eagle_info_v2.py")]  # which has the mixins of eagle_info.py
        text = "".join(path.read_text(encoding="utf-8") for path in sources if path.exists())
        assert not one.kind or f"class {one.kind}" in text, name
        assert f"def {one.name}(" in text or f" {one.name}," in text, name
