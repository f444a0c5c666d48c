"""A mutant: one change of one file, as a value and as a patch."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping

from draftproof.faults.catalogue import read_sources
from draftproof.properties.lib.base import Value

NOT_MUTATED = {
    "engine/subject/": "the observer: what it no longer sees, no healthy engine shows; faults and wrong traces hold it",
    "engine/arena.py::damaged": "the observer's: as engine/subject/, and held by tests/engine/test_arena.py",
    "engine/arena.py::after_guard": "a zone for the observer: as above",
    "engine/graphs/backend.py": "refuses what no graph may do: each refusal has a test that fails without it",
    "engine/graphs/cuda.py": "runs on CUDA only",
    "engine/graphs/capturing.py": "a mark for observers, which no engine reads",
    "engine/graphs/record.py": "HostGraph judges and is not judged: each of its rules has a test that fails without it",
    "engine/graphs/rules.py": "HostGraph judges and is not judged: each of its rules has a test that fails without it",
    "engine/graphs/host.py": "HostGraph judges and is not judged: each of its rules has a test that fails without it",
    "engine/models/checkpoint.py": "reads files, and is held by tests with broken ones",
    "engine/models/config_fields.py": "reads files, and is held by tests with broken ones",
    "engine/models/registry.py::load_target": "reads files, and is held by tests with broken ones",
    "engine/adaptive_config.py": "reads files, and is held by tests with broken ones",
    "engine/models/layers.py::attend_normed": "runs on CUDA only",
    "engine/models/llama.py::is_narrow": "chooses on CUDA only",
    "engine/models/llama.py::_narrow": "runs on CUDA only",
    "engine/models/llama.py::_narrow_logits": "runs on CUDA only",
    "kernels/compilation.py": "says which process compiles, and is held by tests/kernels/test_compilation.py",
    "kernels/registry.py::implementation": "names what serves a device, and is held by a test on each",
    "kernels/registry.py::define": "says what serves a device, and is held by a test on each",
    "kernels/triton_common.py::dependent_launch": "chooses on CUDA only",
}
"""Paths, and functions and classes of a file (`path::name`), that are not mutated, and why."""

RULES = {
    "a statement that only raises, `check*(..)` and `refuse*(..)`": "refuses bad input, and is held by tests with it",
    "`strict=`": "asserts only",
    "`num_warps=`, `num_stages=`, `eviction_policy=`, `cache_modifier=`": (
        "hints to a compiler for GPUs, which change no result"
    ),
    "`if PDL:`, `gdc_*()`, `debug_barrier()`": "order kernels and threads that run at once: on CUDA only",
    "`before_launch(..)`": "tells an observer what a crash would end; a healthy engine shows nothing of it",
    "which of two tensors is asked for its `.device`": "all tensors of a call are on one device",
    "exchanged arguments of `min`, `max`, `minimum`, `maximum`, `promote_types`": "give the same in any order",
}
"""What is not mutated wherever it stands, and why."""


class MutatedLine(Value, frozen=True, kw_only=True):
    """Where a mutant is, its line counted from 1; `before` and `after` are what stands there, stripped."""

    path: str
    kind: str
    line: int
    before: str
    after: str

    @property
    def place(self) -> str:
        """What a triage calls its line."""
        return f"{self.path} | {self.before}"

    @property
    def key(self) -> str:
        """What a triage calls it: it holds as long as the line does."""
        return f"{self.place} | {self.after}"

    @property
    def id(self) -> str:
        return hashlib.sha256(f"{self.key} {self.line}".encode()).hexdigest()[:10]


class Mutant(MutatedLine, frozen=True, kw_only=True):
    """One change of one file; `text` is the whole file with the change."""

    text: str


class Sample(Value, frozen=True, kw_only=True):
    """Mutants, and the seed that chose them."""

    seed: int
    mutants: tuple[Mutant, ...]


def mutable() -> dict[str, str]:
    """Path -> text of every file that is mutated."""
    return {path: text for path, text in read_sources().items() if not path.startswith(tuple(NOT_MUTATED))}


def names_left_out(path: str) -> frozenset[str]:
    """Return the functions and classes of a file that are not mutated."""
    parts = (entry.partition("::") for entry in NOT_MUTATED)
    return frozenset(name for file, _, name in parts if file == path and name)


def changed(text: str, mutated: str) -> tuple[str, str]:
    """Return the lines that differ, stripped and joined."""
    lines = difflib.ndiff(text.splitlines(), mutated.splitlines())
    pairs = [line for line in lines if line[:2] in ("- ", "+ ")]
    return tuple(" ".join(line[2:].strip() for line in pairs if line[0] == sign) for sign in "-+")  # type: ignore[return-value]


def diff(mutant: Mutant, sources: Mapping[str, str]) -> str:
    """Return the mutant as a unified diff with one line of context."""
    old, new = sources[mutant.path].splitlines(), mutant.text.splitlines()
    lines = difflib.unified_diff(old, new, f"a/{mutant.path}", f"b/{mutant.path}", n=1, lineterm="")
    return "\n".join(lines) + "\n"
