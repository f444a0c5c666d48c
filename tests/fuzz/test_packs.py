"""Releases packed for a machine without a network, from wheels made by hand, and unpacked again."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from draftproof.fuzz.releases import packs
from draftproof.fuzz.releases.environment import NotInstalledError
from draftproof.fuzz.releases.index import ReleaseError
from draftproof.fuzz.releases.packages import Recipe, recipe_of
from draftproof.fuzz.releases.trial import Releases
from draftproof.properties.lib.errors import InputError

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TORCH = version("torch").partition("+")[0]


def write_wheel(folder: Path, name: str, number: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> None:
    told = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
    told += "".join(f"Requires-Dist: {one}\n" for one in requires)
    with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}-{number}.dist-info/METADATA", told)
        wheel.writestr(f"{name}-{number}.dist-info/RECORD", "")
        for path, text in files.items():
            wheel.writestr(path, text)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    pins = (f"torch=={TORCH}", "sglang-kernel==0.4.3", "transformers==5.8.1", 'pytest==1; extra == "test"')
    files = {"sglang/__init__.py": "NUMBER = 9\n", "sglang/test/big.py": "", "sglang/multimodal_gen/x.py": ""}
    write_wheel(wheels, "sglang", "0.5.13", files, pins)
    unused = ("sgl_kernel/flash_ops.abi3.so", "_mscclpp.cpython-310.so", "lib/mscclpp.so.0")
    write_wheel(wheels, "sglang_kernel", "0.4.3", {"sgl_kernel/a.py": "", **dict.fromkeys(unused, "x" * 999)})
    write_wheel(wheels, "transformers", "5.8.1", {"transformers/__init__.py": ""}, ("tokenizers<=0.23,>=0.22",))
    for requirement in ("tokenizers==0.22.1", "tokenizers==0.24.0", f"apache-tvm-ffi=={packs._TVM}", *packs._BASE):
        name, _, number = requirement.partition("==")
        name = name.replace("-", "_")
        write_wheel(wheels, name, number or "1.0", {f"{name}/__init__.py": f"NUMBER = {number!r}\n"})
    made = packs.pack("0.5.13", tmp_path / "out", wheels, PYTHON)
    assert made == packs.Pack(
        release="0.5.13", python=PYTHON, torch=TORCH, archives={"engine-0.5.13": 1, "base-5.8.1": 1}
    )
    return tmp_path / "out"


def test_release_is_unpacked_without_what_is_never_called(packed: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert packs.unpack(packed, site) == ["0.5.13"] == packs.unpack(packed, site)
    assert {str(one.relative_to(site / "engine-0.5.13")) for one in (site / "engine-0.5.13").rglob("*.[ps][yo]")} == {
        "sglang/__init__.py",
        "sgl_kernel/a.py",
    }
    code = (
        "import sglang, tokenizers, IPython.display, flashinfer\n"
        "assert (sglang.NUMBER, tokenizers.NUMBER) == (9, '0.22.1')\n"
        "class Named(flashinfer.Wrapper.Inner): pass\n"
        "try: import flashinfer.norm\nexcept ImportError: print('no norm')\n"
        "try: IPython.display.HTML()\nexcept RuntimeError as error: print(error)\n"
    )
    path = f"import sys; sys.path[:0] = {(site / '0.5.13.paths').read_text().splitlines()!r}\n"
    ran = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, check=True)
    assert ran.stdout == (
        "no norm\na package that was left out of the pack is called: expected that nothing here needs it\n"
    )


def test_what_the_server_names_is_taken_from_this_python_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "find_spec", {"jsonschema": object(), "soundfile": None}.__getitem__)
    (always,) = packs._stand_ins(tmp_path, is_late=False)
    assert (always / "soundfile/__init__.py").is_file()
    assert not (always / "jsonschema").exists()


def test_slices_join(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "SLICE", 100)
    made = packs.pack("0.5.13", tmp_path / "small", tmp_path / "wheels", PYTHON)
    assert made.archives["engine-0.5.13"] > 2
    packs.unpack(tmp_path / "small", tmp_path / "site")
    assert (tmp_path / "site/engine-0.5.13/sglang/__init__.py").read_text() == "NUMBER = 9\n"
    (tmp_path / "small/engine-0.5.13.tar.xz.001").unlink()
    with pytest.raises(
        InputError, match=r"is not whole: expected \d+ slices, and engine-0.5.13.tar.xz.001 is not there"
    ):
        packs.unpack(tmp_path / "small", tmp_path / "other")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("python", "2.7", "was packed for Python 2.7: expected that, and this is"),
        ("torch", "1.0", "wants torch 1.0: expected that, and this Python has"),
        ("pythno", "3.12", "contains unknown field `pythno`; expected what `draftproof lab engines pack` has written"),
    ],
)
def test_pack_for_another_machine(packed: Path, tmp_path: Path, field: str, value: str, says: str) -> None:
    told = packed / "0.5.13.json"
    told.write_text(json.dumps(json.loads(told.read_text()) | {field: value}))
    with pytest.raises(InputError, match=says):
        packs.unpack(packed, tmp_path / "site")


def test_slice_that_is_cut(packed: Path, tmp_path: Path) -> None:
    path = packed / "engine-0.5.13.tar.xz.000"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"engine-0.5.13 in .* cannot be read"):
        packs.unpack(packed, tmp_path / "site")


def test_unpacked_releases_are_known_oldest_first(tmp_path: Path) -> None:
    for release in ("0.5.13", "0.5.9"):
        (tmp_path / f"{release}.paths").touch()
    assert packs.unpacked_in(tmp_path) == ("0.5.9", "0.5.13")
    with pytest.raises(ReleaseError, match=r"invalid --engines .*: expected a folder that `draftproof lab engines"):
        packs.unpacked_in(tmp_path / "none")


def test_a_release_in_a_folder_is_run_by_this_python(tmp_path: Path) -> None:
    recipe = Recipe(subject="sglang", parts=recipe_of("sglang").parts)
    releases = Releases("sglang", recipe, tmp_path, 1.0, settings={"graphs": "no"}, engines=tmp_path)
    choice = releases._choice("0.5.13")
    assert (choice.name, choice.python) == ("sglang", sys.executable)
    assert choice.settings == {"graphs": "no", "release": "0.5.13", "engines": str(tmp_path)}


def test_folder_without_packs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no pack in .*: expected what `draftproof lab engines pack` has written"):
        packs.unpack(tmp_path, tmp_path / "site")


def test_release_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(NotInstalledError, match=r"sglang==0.0.0.1 cannot be fetched: .*No matching distribution"):
        packs.pack("0.0.0.1", tmp_path / "out", tmp_path / "wheels")
