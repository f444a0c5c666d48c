"""Modules of unpacked wheels: the real ones, stubs for what is not installed, and files that are no wheels."""

from __future__ import annotations

import sys
import zipfile

import pytest

from draftproof.subjects.wheels.change import ChangeError, changed, changed_text
from draftproof.subjects.wheels.modules import WheelImportError, WheelModules
from draftproof.subjects.wheels.stubs import USED
from draftproof.subjects.wheels.unpack import WheelError, named_by, release_of, unpacked

MODULES = {
    "tinywheel/__init__.py": "",
    "tinywheel/real.py": """
import not_installed
import not_installed.deep.down as down
from not_installed.ops import fused, Base
from tinywheel import partial
try:
    import not_there_either
except ImportError:
    not_there_either = None

@fused
def twice(x):
    return 2 * x

@not_installed.jit(static=1)
def thrice(x):
    return 3 * x

class Child(Base, option=1):
    kept: list[fused] | fused = ()

available = bool(fused) or isinstance(3, fused) or 3 in down.things
""",
    "tinywheel/partial.py": "before = 1\nimport not_installed.ops\nraise OSError('no such device')\n",
    "tinywheel/tolerant.py": "try:\n    from tinywheel.guarded import x\nexcept ImportError:\n    x = 0\n",
    "tinywheel/guarded.py": "import also_not_there\nx = 1\n",
    "tinywheel/strict.py": "try:\n    import needed\nexcept ImportError:\n    raise OSError from None\n",
    "tinywheel/asks.py": "import importlib.util as u\nu.find_spec('never_imported')\nimport json.nothing\n",
    "tinywheel-1.2.dist-info/METADATA": "Name: tinywheel\nVersion: 1.2\n",
}


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "tinywheel-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in MODULES.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def modules(wheel, tmp_path):
    loaded = WheelModules(unpacked(wheel, tmp_path / "there"))
    yield loaded
    loaded.close()


def test_the_real_module_runs_and_what_is_not_installed_is_a_stub(modules):
    real = modules.module("tinywheel.real")
    assert (real.twice(4), real.thrice(4), real.available, real.not_there_either) == (8, 12, False, None)
    assert isinstance(real.Child(), real.Child)
    assert modules.missing == {"not_installed"}


def test_a_module_that_fails_keeps_what_it_had_and_is_listed(modules):
    real = modules.module("tinywheel.real")
    assert real.partial.before == 1
    assert not real.partial.after
    assert modules.failed == {"tinywheel.partial": "OSError: no such device"}
    with pytest.raises(WheelImportError, match=r"tinywheel.partial cannot be imported whole: OSError: no such device"):
        modules.module("tinywheel.partial")


def test_a_failure_that_a_caller_expects_is_left_to_it(modules):
    assert modules.module("tinywheel.tolerant").x == 0
    assert (modules.missing, modules.failed) == (set(), {})


def test_handlers_that_raise_again_expect_nothing(modules):
    assert modules.module("tinywheel.strict").needed is sys.modules["needed"]


def test_asking_whether_a_package_is_there_makes_no_stub(modules):
    with pytest.raises(WheelImportError, match="ModuleNotFoundError"):
        modules.module("tinywheel.asks")
    assert modules.missing == set()


def test_what_a_wheel_lacks_is_none(modules):
    assert modules.find("tinywheel.real", "nothing") is None
    assert modules.find("tinywheel.nothing", "x") is None
    with pytest.raises(WheelImportError, match=r"has no module tinywheel\.nothing"):
        modules.module("tinywheel.nothing")


def test_the_import_of_others_is_not_touched(modules):
    modules.module("tinywheel.real")
    with pytest.raises(ModuleNotFoundError):
        import nobody_has_this  # noqa: F401


def test_a_second_wheel_of_a_package_is_refused_after_the_first_was_imported(modules):
    modules.module("tinywheel.real")
    with pytest.raises(WheelError, match="tinywheel was imported from elsewhere"):
        WheelModules(modules.folder)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tinywheel-1.2-py3-none-any.whl", b"no archive", "expected a zip archive"),
        ("tinywheel.zip", b"", "expected a name such as"),
        ("empty-1.0-py3-none-any.whl", None, r"expected an archive with a folder \*.dist-info"),
    ],
)
def test_a_file_that_is_no_wheel_is_refused(tmp_path, name, content, said):
    path = tmp_path / name
    if content is None:
        zipfile.ZipFile(path, "w").close()
    else:
        path.write_bytes(content)
    with pytest.raises(WheelError, match=said):
        unpacked(path, tmp_path / "there")
    assert not list((tmp_path / "there").glob("*"))


def test_folders_are_unpacked_wheels_or_refused(wheel, tmp_path):
    there = unpacked(wheel, tmp_path / "there")
    assert unpacked(there, tmp_path / "elsewhere") == there == unpacked(wheel, tmp_path / "there")
    with pytest.raises(WheelError, match="expected an unpacked wheel"):
        unpacked(tmp_path, tmp_path)
    with pytest.raises(WheelError, match="expected a file that is there"):
        unpacked(tmp_path / "none-1.0-py3-none-any.whl", tmp_path)


def test_a_wheel_that_was_built_again_is_unpacked_again(wheel, tmp_path):
    there = unpacked(wheel, tmp_path / "there")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tinywheel/later.py", "")
    again = unpacked(wheel, tmp_path / "there")
    assert [(place / "tinywheel/later.py").is_file() for place in (there, again)] == [False, True]


def test_what_a_wheel_is_of_is_what_it_says(wheel, tmp_path):
    there = unpacked(wheel, tmp_path / "there")
    assert release_of(there, wheel, ("tinywheel",)) == ("tinywheel", "1.2")
    with pytest.raises(WheelError, match="expected one of a or b, not of tinywheel"):
        release_of(there, wheel, ("b", "a"))
    (there / "tinywheel-1.2.dist-info").rename(there / "tinywheel-what.dist-info")
    with pytest.raises(WheelError, match=r"expected one with a folder NAME-VERSION\.dist-info"):
        release_of(there, wheel, ("tinywheel",))


def test_a_name_says_package_and_version():
    from pathlib import Path

    assert named_by(Path("sglang-0.5.10.post1-cp311-cp311-manylinux_2_34_x86_64.whl")) == ("sglang", "0.5.10.post1")


def test_what_a_module_lacks_is_listed_and_what_is_asked_of_a_stub_is_noted(modules):
    real = modules.module("tinywheel.real")
    assert modules.lacks("tinywheel.real") == dict.fromkeys(
        ("not_installed", "not_installed.deep.down", "not_installed.ops.Base", "not_installed.ops.fused"),
        "not_installed is not installed here",
    )
    USED.clear()
    assert real.twice(1) == 2
    assert not USED
    assert not real.down.available()
    assert {"not_installed.deep.down.available", "not_installed.deep.down.available()"} >= USED
    assert USED


def test_a_text_is_changed_in_one_function_or_refused(modules):
    real = modules.module("tinywheel.real")
    made = changed(real, "twice", "2 * x", "4 * x")
    assert (real.twice(1), made.twice(1), made.thrice(1)) == (2, 4, 3)
    with pytest.raises(ChangeError, match="invalid text '5' of a fault: expected once in twice of tiny, not 0 times"):
        changed_text(MODULES["tinywheel/real.py"], "twice", "5", "", "tiny")
    with pytest.raises(ChangeError, match="expected once in twice of tiny, not 2 times"):
        changed_text(MODULES["tinywheel/real.py"], "twice", "x", "", "tiny")
    with pytest.raises(ChangeError, match="invalid function 'nice' of a fault: expected one of this name in tiny"):
        changed_text(MODULES["tinywheel/real.py"], "nice", "x", "", "tiny")
