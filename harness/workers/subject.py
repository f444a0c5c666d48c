"""From a SubjectSpec to the subject, in the worker: nothing of the engine is imported before."""

from __future__ import annotations

from draftproof.harness.hunk_counters import HunkCounters
from draftproof.harness.subjects import ENGINE, import_engine
from draftproof.harness.subjects import make as make_named
from draftproof.harness.workers.messages import SubjectSpec
from draftproof.properties.subject import Subject


def make(spec: SubjectSpec, counters: HunkCounters | None = None) -> Subject:
    """Make the subject of a spec; `counters` count its patched hunks. Raises what importing and making it raises."""
    if spec.folder:
        (counters or HunkCounters(spec.hunks)).install()
        import_engine(spec.folder)
    return make_named(spec.factory or ENGINE, spec.device)


def healthy(device: str) -> bool:
    """Whether the device still works: an illegal access makes every later call of its process fail."""
    if device == "cpu":
        return True
    import torch

    try:
        torch.cuda.synchronize()
        return int((torch.ones(2, device=device) + 1).sum().item()) == 4
    except RuntimeError:
        return False
