"""The code of real models under the matrix: checkpoints for faults, tiny ones or a user's own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import zlib
from importlib.util import find_spec
from pathlib import Path

from draftproof.harness.checkpoint_scenarios import KvDtypes, RealDraft, every_draft, one_draft, real_scenarios
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import DRAFT_KINDS_BY_NAME, DraftSet, KvCacheDtype
from draftproof.properties.values.fp8 import FP8
from draftproof.properties.values.scenario import Scenario

FOLDERS = {"standalone": "llama", "dflash": "dflash", "eagle3": "eagle3"}
"""The tiny checkpoints that are drafts of others."""
_MOST = 12
"""Scenarios of a tiny checkpoint for each seed: the reference computes a real model from token zero in every round."""
CACHE = Path(".draftproof")
_WRITER = Path(__file__).with_name("tiny_checkpoints.py")


class Checkpoints(Value, frozen=True, kw_only=True):
    """Directories of targets, which take turns, and of a draft ("": none); `most` scenarios of them for a seed.

    Both keep their KV entries as `kv_cache_dtype` says.
    """

    models: tuple[str, ...]
    draft_model: str = ""
    most: int = 1 << 30
    kv_cache_dtype: KvCacheDtype = "auto"

    def scenarios(self, draft: DraftSet, seed: int, count: int) -> tuple[Scenario, ...]:
        """Return the scenarios of a seed with this draft. Raises CheckpointError if a directory is bad or no draft."""
        folder, count = Path(self.draft_model) if self.draft_model else None, min(count, self.most)
        share = -(-count // len(self.models))
        lists = []
        for path in map(Path, self.models):
            try:
                drafts = _drafts(path, draft, folder, seed, KvDtypes(self.kv_cache_dtype, self.kv_cache_dtype))
                lists.append(real_scenarios(path, drafts, seed, share, self.kv_cache_dtype))
            except ValueError as error:
                raise CheckpointError(f"invalid checkpoint {path} with draft {draft}: {error}") from None
        return tuple(itertools.chain.from_iterable(zip(*lists, strict=True)))[:count]


def _drafts(path: Path, draft: DraftSet, folder: Path | None, seed: int, kv_dtypes: KvDtypes) -> tuple[RealDraft, ...]:
    if draft == "all":
        return every_draft(path, folder, seed, kv_dtypes).drafts
    own = folder if DRAFT_KINDS_BY_NAME[draft].checkpoint.startswith("directory") else None
    return (one_draft(path, draft, own, seed, kv_dtypes=kv_dtypes),)


def tiny_folder(cache: Path) -> Path:
    """Return the folder of the tiny checkpoints in a cache, and write them if it is not there.

    Its name is the same wherever the same file writes them. Raises CheckpointError.
    """
    folder = cache / tiny_name()
    if not folder.is_dir():
        _write(folder)
    return folder


def is_tiny(folder: Path) -> bool:
    """Return whether it is a folder of these tiny checkpoints, here or on another machine."""
    return folder.name == tiny_name()


def tiny_name() -> str:
    """Return the name of their folder in any cache."""
    return f"tiny-{zlib.crc32(_WRITER.read_bytes()):08x}"


def tiny(name: str, draft: DraftSet, cache: Path = CACHE) -> Checkpoints:
    """Return a tiny checkpoint with the directory of this draft; all are written when the first is asked for.

    Raises CheckpointError if that takes transformers and they are not installed.
    """
    folder, other = tiny_folder(cache), FOLDERS.get(draft, "")
    draft_model, kept = str(folder / other) if other else "", FP8 if name.endswith("-fp8") else "auto"
    return Checkpoints(models=(str(folder / name),), draft_model=draft_model, most=_MOST, kv_cache_dtype=kept)


def _write(folder: Path) -> None:
    """Write them in a process of its own: what a process has imported must not change what it generates."""
    if find_spec("transformers") is None:
        raise CheckpointError(
            "no transformers: expected them to write the tiny checkpoints that faults of real models meet;"
            " try pip install transformers"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="tiny-") as part:
        written = Path(part) / "written"
        code = "from draftproof.faults.tiny_checkpoints import write_all; write_all(Path(sys.argv[1]))"
        command = [sys.executable, "-P", "-c", f"import sys; from pathlib import Path; {code}", str(written)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise CheckpointError(f"the tiny checkpoints cannot be written: {last}")
        try:
            written.rename(folder)
        except OSError:
            # Another process was first.
            if not folder.is_dir():
                raise
