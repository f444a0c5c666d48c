"""From a SubjectSpec to the subject, in the worker: nothing of the engine is imported before."""

from __future__ import annotations

from draftproof.harness import subjects as factory
from draftproof.harness.hunk_counters import HunkCounters
from draftproof.harness.workers.messages import SubjectSpec
from draftproof.properties.subject import Subject


def make(spec: SubjectSpec) -> Subject:
    """The subject of a spec. Raises what importing and making it raises."""
    if spec.folder:
        from draftproof.faults.fork_child import import_copy

        HunkCounters(spec.hunks).install()
        import_copy(spec.folder)
    if spec.twins:
        from draftproof.harness.twins import use_twins

        use_twins(spec.twins, spec.device)
    name = spec.factory or "draftproof.engine.subject:EngineSubject"
    if not factory.well_formed(name):
        raise ValueError(f"factory is {name}, allowed: package.module:name")
    return factory.make(name, spec.device)


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
