"""Released engines for machines without a network: packed where there is one, unpacked into a folder of paths.

A pack holds what a release needs beside the Python, the torch and the Triton of the other machine, and nothing that is
never called there: an SGLang of 7 MB and its kernels of 322 MB become 19 MB, what both import 11 MB.
"""

from __future__ import annotations

import io
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from draftproof.fuzz.releases.environment import LIMIT, NotInstalledError
from draftproof.fuzz.releases.index import ReleaseError
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import InputError

SLICE = 50 * 2**20
"""The bytes of a slice at most: some ways to a machine take no larger file."""
_STAND_IN = Path(__file__).with_name("stand_in.py")
_GLIBC = (34, 28, 27, 17)
# What SGLang imports when it starts, and a Python with torch and Triton lacks. FastAPI and Starlette: the last that do
# not import opentelemetry.
_BASE = (
    *("orjson", "msgspec", "pyzmq", "fastapi==0.116.1", "starlette==0.47.3", "uvicorn==0.35.0", "partial_json_parser"),
    *("pybase64", "python-multipart", "setproctitle", "pydantic==2.12.5", "pydantic_core==2.41.5", "annotated-types"),
    *("typing-inspection", "compressed-tensors==0.15.0.1", "dill", "openai==2.6.1", "distro", "jiter", "sniffio"),
    *("loguru", "gguf", "interegular"),
)
_TVM = "0.1.9"
_WITHOUT = (
    *("sglang/multimodal_gen/", "sglang/test/", "sglang/benchmark/", "sglang/eval/", "sglang/srt/grpc/_core"),
    *("sglang/jit_kernel/tests/", "sglang/jit_kernel/benchmark/"),
    *(
        "sgl_kernel/flash_ops",
        "sgl_kernel/flashmla_ops",
        "sgl_kernel/sm100/",
        "_mscclpp",
        "lib/mscclpp",
        "include/mscclpp",
    ),
)


class Pack(Value, frozen=True, kw_only=True):
    """What a pack is for: the release, its Python and torch, and the archives that it is made of with their slices."""

    release: str
    python: str
    torch: str
    archives: dict[str, int]


def pack(release: str, out: Path, wheels: Path, python: str = "3.12") -> Pack:
    """Write a release of SGLang to a folder, in slices; wheels that are in `wheels` are not downloaded again.

    Raises NotInstalledError with what pip said.
    """
    out.mkdir(parents=True, exist_ok=True)
    wheels.mkdir(parents=True, exist_ok=True)
    fetch = _fetcher(wheels, python)
    engine = fetch(f"sglang=={release}")
    pins = _pins(engine)
    # 0.5.14 and later import deep_gemm while graphs are captured.
    more = ("sgl-deep-gemm",) if Version(release) >= Version("0.5.14") and "sgl-deep-gemm" in pins else ()
    parts = [engine, *(fetch(f"{name}=={pins[name]}") for name in ("sglang-kernel", *more))]
    transformers = fetch(f"transformers=={pins['transformers']}")
    others = (_tokenizers(transformers), f"apache-tvm-ffi=={pins.get('apache-tvm-ffi', _TVM)}", *_BASE)
    base = f"base-{pins['transformers']}"
    made = {
        f"engine-{release}": _archived(out / f"engine-{release}", parts),
        base: _archived(out / base, [transformers, *map(fetch, others)]),
    }
    told = Pack(release=release, python=python, torch=pins.get("torch", ""), archives=made)
    (out / f"{release}.json").write_bytes(msgspec.json.encode(told))
    return told


def unpack(packs: Path, site: Path) -> list[str]:
    """Install every release that lies in a folder of packs, and return their names.

    `site/RELEASE.paths` then has the folders that a Python is to import from, first of all. What is there is left
    as it is. Raises InputError for a pack that is not whole, or that is for another Python or torch than this one.
    """
    found = sorted(packs.glob("*.json"))
    if not found:
        raise InputError(f"no pack in {packs}: expected what `draftproof lab engines pack` has written")
    site.mkdir(parents=True, exist_ok=True)
    told = list(map(_told, found))
    for one in told:
        _require_fit(one, packs)
        for name in one.archives:
            _extract(packs, name, site / name)
        _write_paths(one, site)
    return [one.release for one in told]


def unpacked_in(site: Path) -> tuple[str, ...]:
    """Return the releases that were unpacked into a folder, oldest first. Raises ReleaseError."""
    if not (found := [one.name.removesuffix(".paths") for one in site.glob("*.paths")]):
        raise ReleaseError(
            f"invalid --engines {str(site)!r}: expected a folder that `draftproof lab engines unpack` has filled"
        )
    return tuple(sorted(found, key=Version))


def _told(path: Path) -> Pack:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Pack)
    except msgspec.MsgspecError as error:
        raise InputError(
            f"invalid pack {path}: {error}; expected what `draftproof lab engines pack` has written"
        ) from None


def _fetcher(wheels: Path, python: str) -> Callable[[str], Path]:
    """Return a function that gives the wheel of a requirement, for the other machine's Python and glibc."""
    platforms = [f"manylinux_2_{glibc}_x86_64" for glibc in _GLIBC] + ["manylinux2014_x86_64"]
    target = [option for one in platforms for option in ("--platform", one)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    pip += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *target, "-d", str(wheels)]

    def fetch(requirement: str) -> Path:
        wanted = Requirement(requirement)
        if (there := _wheel(wheels, wanted)) is None:
            ended = subprocess.run(
                [*pip, requirement],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
            there = _wheel(wheels, wanted)
            if ended.returncode or there is None:
                said = ended.stderr.strip().splitlines() or ["pip said nothing"]
                raise NotInstalledError(f"{requirement} cannot be fetched: {said[-1]}")
        return there

    return fetch


def _wheel(wheels: Path, wanted: Requirement) -> Path | None:
    """Return the newest wheel in a folder that meets a requirement."""
    there = [one for one in wheels.glob("*.whl") if canonicalize_name(one.name.split("-")[0]) == _name(wanted)]
    found = [(Version(one.name.split("-")[1]), one) for one in there]
    met = [(number, one) for number, one in found if wanted.specifier.contains(number, prereleases=True)]
    return max(met)[1] if met else None


def _name(wanted: Requirement) -> str:
    return canonicalize_name(wanted.name)


def _metadata(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (one for one in opened.namelist() if one.endswith(".dist-info/METADATA"))
        told = HeaderParser().parsestr(opened.read(name).decode())
    return [Requirement(one) for one in told.get_all("Requires-Dist") or ()]


def _pins(wheel: Path) -> dict[str, str]:
    """Return the versions that a wheel asks for exactly, by name."""
    wanted = (one for one in _metadata(wheel) if "extra" not in str(one.marker))
    asked = {canonicalize_name(one.name): str(one.specifier) for one in wanted}
    return {name: version.removeprefix("==") for name, version in asked.items() if version.startswith("==")}


def _tokenizers(transformers: Path) -> str:
    return next(f"{one.name}{one.specifier}" for one in _metadata(transformers) if one.name == "tokenizers")


class _Slices(io.RawIOBase):
    """A file in parts NAME.tar.xz.000, .001, .. of at most `SLICE` bytes."""

    def __init__(self, name: Path) -> None:
        self._name, self.count, self._left = name, 0, 0
        for old in name.parent.glob(f"{name.name}.tar.xz.*"):
            old.unlink()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            if not self._left:
                self.count, self._left = self.count + 1, SLICE
            part = view[done : done + self._left]
            with Path(f"{self._name}.tar.xz.{self.count - 1:03}").open("ab") as out:
                out.write(part)
            done, self._left = done + len(part), self._left - len(part)
        return len(view)


def _archived(name: Path, wheels: Sequence[Path]) -> int:
    """Write what is needed of some wheels to an archive, and return how many slices it has."""
    slices = _Slices(name)
    with lzma.open(cast(BinaryIO, slices), "wb", preset=6) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as opened:
                for one in opened.infolist():
                    if one.is_dir() or one.filename.endswith("/RECORD") or one.filename.startswith(_WITHOUT):
                        continue
                    info = tarfile.TarInfo(one.filename)
                    info.size, info.mode = one.file_size, 0o644
                    with opened.open(one) as content:
                        tar.addfile(info, content)
    return slices.count


def _require_fit(one: Pack, packs: Path) -> None:
    """Raise InputError unless every slice is there, and this Python and its torch are those of the pack."""
    for name, count in one.archives.items():
        lacks = [number for number in range(count) if not (packs / f"{name}.tar.xz.{number:03}").is_file()]
        if lacks:
            gone = f"{name}.tar.xz.{lacks[0]:03}"
            raise InputError(f"{name} in {packs} is not whole: expected {count} slices, and {gone} is not there")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != one.python:
        raise InputError(f"sglang {one.release} was packed for Python {one.python}: expected that, and this is {here}")
    try:
        torch = version("torch").partition("+")[0]
    except PackageNotFoundError:
        torch = "none"
    if one.torch and torch != one.torch:
        raise InputError(f"sglang {one.release} wants torch {one.torch}: expected that, and this Python has {torch}")


def _extract(packs: Path, name: str, place: Path) -> None:
    done = place / ".installed"
    if done.exists():
        return
    parts = sorted(packs.glob(f"{name}.tar.xz.*"))
    whole = io.BytesIO(b"".join(one.read_bytes() for one in parts))
    try:
        with lzma.open(whole) as packed, tarfile.open(fileobj=packed) as tar:
            tar.extractall(place, filter="data")
    except (lzma.LZMAError, EOFError, tarfile.TarError) as error:
        raise InputError(f"{name} in {packs} cannot be read ({error}): expected slices as they were packed") from None
    done.touch()


def _write_paths(one: Pack, site: Path) -> None:
    """Write from where a release is imported, and stand-ins for packages that are named and never called."""
    engine, base = (site / name for name in one.archives)
    paths = [engine, *_stand_ins(site, is_late=(engine / "sglang/srt/model_executor/runner").is_dir()), base]
    (site / f"{one.release}.paths").write_text("".join(f"{path.resolve()}\n" for path in paths))


def _stand_ins(site: Path, *, is_late: bool) -> Iterable[Path]:
    """Yield folders of stand-ins: of xgrammar only for releases that import it unasked, from 0.5.16 on.

    Without `flashinfer.norm` SGLang takes RMSNorm from its own kernels. Its server imports jsonschema and soundfile.
    """
    call = "from stand_in import stand_in\n\n{}stand_in(__name__{})\n"
    always, late = site / "stand-ins", site / "late-stand-ins"
    text = {
        always / "stand_in.py": _STAND_IN.read_text(),
        always / "IPython/__init__.py": call.format("", ""),
        always / "flashinfer/__init__.py": call.format('__version__ = "0"\n', ', missing={"flashinfer.norm"}'),
        late / "xgrammar/__init__.py": call.format("", ""),
    }
    for name in ("jsonschema", "soundfile"):
        if find_spec(name) is None:
            text[always / name / "__init__.py"] = call.format('__version__ = "0"\n', "")
    for path, content in text.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return [late, always] if is_late else [always]
