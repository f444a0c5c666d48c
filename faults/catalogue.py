"""The catalogue of faults: a file each, named by its id.

First its front matter, TOML between `+++` lines, then its changes; see draftproof.faults.patching.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from draftproof.faults.patching import Hunk, PatchError, StalePatchError, apply, by_path, parse
from draftproof.properties.kernels.table import KERNEL_CONTRACTS, KERNEL_PREFIX
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.names import did_you_mean
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_SETS, DraftSet

FENCE = "+++"
SOURCES = Path(__file__).resolve().parent.parent
"""The folder that holds engine/ and kernels/, in a checkout as in an installation."""
CATALOGUE = SOURCES / "faults" / "known"
SUFFIX = ".fault"
TINY = (
    "llama",
    "llama-fp8",
    "qwen3",
    "qwen3-next",
    "qwen3.5-moe",
    "glm4-moe",
    "deepseek-v3",
    "deepseek-lite",
    "mimo",
    "step3p5",
)
"""The targets that tiny_checkpoints.py writes."""


Part = Literal["engine", "eager", "triton"]


class UnknownFaultError(DraftproofError, ValueError):
    """No fault of that name; the message suggests the nearest."""


class Fault(Value, frozen=True, kw_only=True):
    """What a fault is. `contract` must notice it, `channel` is where; "" in a patch from elsewhere: any.

    `draft`: the draft of the scenarios that it meets, or "all" of them in turns; `model`: the tiny checkpoint that
    these are of ("": probes). `smoke`: whether it is tried in every CI run. `explained`: why it survives where it does.
    """

    id: str
    source: str = ""
    mechanism: str = ""
    contract: str = ""
    channel: str = ""
    draft: DraftSet = ALGORITHMS[0]
    model: str = ""
    smoke: bool = False
    explained: str = ""


class FaultFile(Value, frozen=True, kw_only=True):
    """A fault with its changes as they are written, and the file it came from."""

    fault: Fault
    text: str
    path: str

    def hunks(self) -> tuple[Hunk, ...]:
        """Return the changes. Raises PatchError."""
        return parse(self.text)

    @property
    def patches(self) -> Part:
        """What it changes: where that are kernels only, it is tried on those."""
        return part_of({hunk.path for hunk in self.hunks()})


def part_of(paths: Collection[str]) -> Part:
    """Return which implementation files are of: a fault of `triton` runs with the interpreter, or on CUDA."""
    for part in ("triton", "eager"):
        if all(path.startswith(f"kernels/{part}_") for path in paths):
            return part
    return "engine"


def read_fault(path: Path) -> FaultFile:
    """Return the fault of a file. Raises PatchError naming the file and what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PatchError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    head, changes = _split(text)
    try:
        # A plain diff says nothing of drafts, so that it is tried with each.
        raw = tomllib.loads(head) if head else {"draft": "all"}
        if (draft := raw.get("draft", ALGORITHMS[0])) not in DRAFT_SETS:
            raise PatchError(f"invalid draft {draft!r}: expected {', '.join(DRAFT_SETS)}")
        if (model := raw.get("model", "")) not in ("", *TINY):
            raise PatchError(f"invalid model {model!r}: expected {', '.join(TINY)}")
        if unknown := sorted(set(raw) - set(Fault.__struct_fields__)):
            raise PatchError(f"invalid field {unknown[0]!r}: expected {', '.join(Fault.__struct_fields__)}")
        fault = msgspec.convert({"id": path.stem, **raw}, Fault)
        parse(changes)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, PatchError) as error:
        raise PatchError(f"{path}: {error}") from None
    return FaultFile(fault=fault, text=changes, path=str(path))


def validate_names(file: FaultFile) -> None:
    """Raise PatchError for an unknown contract or channel."""
    # Contracts need numpy, and the list of faults shall be quick.
    from draftproof.faults.trial import HANG_CONTRACT
    from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME

    contract, channel = file.fault.contract, file.fault.channel
    contracts = ("", HANG_CONTRACT, *CONTRACTS_BY_NAME, *KERNEL_CONTRACTS)
    if contract not in contracts:
        hint = did_you_mean(contract, contracts)
        raise PatchError(f"{file.path}: invalid contract {contract!r}: expected a contract of `draftproof check`{hint}")
    if channel and channel not in CHANNELS and not channel.startswith(KERNEL_PREFIX):
        problem = f"{file.path}: invalid channel {channel!r}"
        raise PatchError(f"{problem}: expected one of docs/semantics/channels.md, or kernel.*")


def _split(text: str) -> tuple[str, str]:
    """Return (front matter, changes); a plain diff has no front matter."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != FENCE:
        return "", text
    for end, line in enumerate(lines[1:], start=1):
        if line.strip() == FENCE:
            return "".join(lines[1:end]), "".join(lines[end + 1 :])
    raise PatchError(f"the front matter is not closed by a line {FENCE}")


def catalogue(folder: Path = CATALOGUE) -> dict[str, FaultFile]:
    """Return every fault by id, sorted. Raises PatchError for a broken file or an id used twice."""
    faults: dict[str, FaultFile] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        file = read_fault(path)
        if file.fault.id in faults:
            raise PatchError(f"{path}: invalid id {file.fault.id!r}: {faults[file.fault.id].path} has it already")
        faults[file.fault.id] = file
    return dict(sorted(faults.items()))


def find(name: str, faults: dict[str, FaultFile]) -> FaultFile:
    """Return one fault by id. Raises UnknownFaultError."""
    if name not in faults:
        hint = did_you_mean(name, faults)
        raise UnknownFaultError(
            f"invalid fault {name!r}: expected one of {len(faults)} of `draftproof faults list`{hint}"
        )
    return faults[name]


def read_sources(paths: tuple[str, ...] = ("engine", "kernels"), root: Path = SOURCES) -> dict[str, str]:
    """Return path -> text of every Python file that a fault may touch."""
    files = sorted(file for folder in paths for file in (root / folder).rglob("*.py"))
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


class FaultSummary(Fault, frozen=True, kw_only=True):
    """One fault as `faults list` shows it; `stale` says why it does not apply, "" if it does."""

    patches: Part
    stale: str = ""


class FaultList(Value, frozen=True, kw_only=True):
    """What `faults list --json` writes."""

    faults: tuple[FaultSummary, ...]


def summary(file: FaultFile, sources: Mapping[str, str]) -> FaultSummary:
    """Return a fault as it is listed, and whether it applies to `sources`."""
    mechanism = " ".join(file.fault.mechanism.split())
    fields = {**msgspec.structs.asdict(file.fault), "mechanism": mechanism, "patches": file.patches}
    return FaultSummary(**fields, stale=_stale(file, sources))


def _stale(file: FaultFile, sources: Mapping[str, str]) -> str:
    try:
        for path, hunks in by_path(file.hunks()).items():
            apply(sources.get(path, ""), hunks)
    except StalePatchError as error:
        return str(error)
    return ""
