"""The Triton sources under the interpreter, in processes that have TRITON_INTERPRET set before Triton is imported.

float32, float16 and the ring: the interpreter computes bfloat16 on its bit patterns.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from draftproof import kernels
from draftproof.kernels.interpreted import mend_numbers
from draftproof.properties.kernels.table import OPS
from tests.warm import Warm

LANE = Path(__file__).with_name("lane.py")
KERNELS = Path(kernels.__file__).parent
EXAMPLES = 6
SHARES = 3
"""Each share of the ops is one test with a process of its own, so that no two workers run the same ops."""
IMPORTED = {"triton_ahead", "triton_chunk", "triton_common", "triton_delta"}
"""Sources without ops of their own."""


def sources() -> dict[str, str]:
    """Return the Triton source of each op: the one beside the source of its eager function."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in KERNELS.glob("eager_*.py")}
    return {op: stem.replace("eager", "triton") for op in OPS for stem, text in texts.items() if f"\ndef {op}(" in text}


def test_every_triton_source_is_of_an_op():
    assert sources().keys() == set(OPS)
    assert {*sources().values(), *IMPORTED} == {path.stem for path in KERNELS.glob("triton_*.py")}


@pytest.mark.parametrize("share", range(SHARES))
def test_every_contract_holds(share: int, warm: Warm):
    """A launcher that led to the eager function would pass, too."""
    ops = tuple(OPS)[share::SHARES]
    command = [sys.executable, str(LANE), str(EXAMPLES), *ops]
    done = warm.run(command, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    lane = json.loads(done.stdout)
    assert lane["implementation"] == "interpreted"
    assert {sources()[op] for op in ops} <= set(lane["sources"]) <= {*sources().values(), *IMPORTED}
    assert lane["ops"].keys() == set(ops)
    assert {op: of["differences"] for op, of in lane["ops"].items() if of["differences"]} == {}
    assert [op for op, of in lane["ops"].items() if of["examples"] < EXAMPLES or not of["changed"]] == []


def as_triton_3_6(tensor: type, scope: Any) -> None:
    """Take the number of an array that has a dimension."""
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data))


def test_a_tensor_of_one_element_has_a_number_whichever_numpy_is_there(monkeypatch: pytest.MonkeyPatch):
    from triton.runtime import interpreter

    set_: dict[str, Any] = {}
    scope = SimpleNamespace(set_attr=lambda _, name, value: set_.update({name: value}))
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", as_triton_3_6)
    mend_numbers.__wrapped__()
    interpreter._patch_lang_tensor(object, scope)
    assert set_["__index__"](SimpleNamespace(handle=SimpleNamespace(data=np.array([3])))) == 3
