"""An error of a fault's own text is told from what its mistake leads to."""

import runpy
import traceback
from pathlib import Path

import pytest

from draftproof.faults.own_error import own_error

PATH = "engine/walk.py"
SOURCE = """
class Loose:
    def __getattr__(self, name):
        raise AttributeError(f"Loose has no {name}")


def takes(one):
    return one.deep


def walk():
    LINE
"""
OWN = {PATH: (SOURCE.split("\n").index("    LINE") + 1,)}


def trace_of(folder: Path, line: str, cause: str = "") -> str:
    """The traceback of a file that a fault wrote this line of; with `cause` it is only what that led to."""
    file = folder / PATH
    file.parent.mkdir()
    file.write_text(SOURCE.replace("LINE", line))
    try:
        try:
            runpy.run_path(str(file))["walk"]()
        except Exception as error:
            if cause:
                raise RuntimeError(cause) from error
            raise
    except Exception as error:
        return "".join(traceback.format_exception(error))
    pytest.fail("it raises")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("gone", "NameError: name 'gone' is not defined"),
        ("later += 1", "UnboundLocalError: "),
        ("walk.gone", "AttributeError: 'function' object has no attribute 'gone'"),
        ("Loose().gone", "AttributeError: Loose has no gone"),
        ("import gone_for_good", "ModuleNotFoundError: No module named 'gone_for_good'"),
        ("from ast import gone", "ImportError: cannot import name 'gone' from 'ast'"),
        ("takes(two=2)", "TypeError: takes() got an unexpected keyword argument 'two'"),
        ("takes()", "TypeError: takes() missing 1 required positional argument: 'one'"),
        ("takes(1, 2)", "TypeError: takes() takes 1 positional argument but 2 were given"),
        ("takes(1, one=1)", "TypeError: takes() got multiple values for argument 'one'"),
    ],
)
@pytest.mark.parametrize("cause", ["", "the launch failed"])
def test_a_name_that_is_not_there_is_an_error_of_the_text(line: str, told: str, cause: str, tmp_path: Path):
    found = own_error(trace_of(tmp_path, line, cause), str(tmp_path), OWN)
    assert found.startswith(f"its own line in {PATH} raises {told}")


@pytest.mark.parametrize(
    "line", ["None.gone", "takes(None)", "takes(1)", "[][9]", "1 + 'a'", "{}['gone']", "raise ValueError('walk')"]
)
def test_what_a_mistake_leads_to_is_not(line: str, tmp_path: Path):
    assert own_error(trace_of(tmp_path, line), str(tmp_path), OWN) == ""


def test_only_lines_that_a_fault_wrote_are_its_own(tmp_path: Path):
    trace = trace_of(tmp_path, "gone")
    (number,) = OWN[PATH]
    assert own_error(trace, str(tmp_path), {PATH: (number - 1,), "engine/run.py": (number,)}) == ""
    assert own_error(trace, str(tmp_path / "elsewhere"), OWN) == ""
    assert own_error("", str(tmp_path), OWN) == ""
