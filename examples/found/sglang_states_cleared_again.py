"""SGLang 0.5.13 and .post1: a hybrid's verify without a graph clears the states of the prompts before it.

python sglang_states_cleared_again.py UNPACKED_WHEEL...

Two prompts in new slots, 4 and 5, then the verify of the same batch, which no request has left.
"""

import ast
import enum
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import torch

NAMES = ("_execute_deferred_mamba_cow_and_clear", "_maybe_execute_deferred_mamba_cow_and_clear")


def method_of(wheel):
    """Return the source of the method, which later releases have in their model runner."""
    srt = Path(wheel) / "sglang/srt"
    for file in ("layers/attention/hybrid_linear_attn_backend.py", "model_executor/model_runner.py"):
        text = (srt / file).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name in NAMES:
                return node.name, textwrap.dedent(ast.get_source_segment(text, node))
    return None, None


def modes_of(wheel):
    text = (Path(wheel) / "sglang/srt/model_executor/forward_batch_info.py").read_text(encoding="utf-8")
    (found,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == "ForwardMode")
    space = {"IntEnum": enum.IntEnum, "auto": enum.auto}
    exec("from __future__ import annotations\n" + ast.get_source_segment(text, found), space)
    return space["ForwardMode"]


for wheel in sys.argv[1:]:
    name, source = method_of(wheel)
    if name is None:
        print(wheel, "clears states where it takes slots")
        continue
    modes, cleared = modes_of(wheel), []
    pool = SimpleNamespace(
        mamba_pool=SimpleNamespace(clear_slots=cleared.append),
        translate_mamba_indices=lambda slots: slots,
        mamba_ckpt_pool=None,
    )
    space = {"HybridReqToTokenPool": SimpleNamespace}
    exec("from __future__ import annotations\n" + source, space)
    of = SimpleNamespace(is_draft_worker=False, req_to_token_pool=pool)
    for mode in (modes.EXTEND, modes.TARGET_VERIFY):
        # Each forward is told what the scheduler's batch has, which keeps it until a request leaves.
        told = {"mamba_clear_indices": torch.tensor([4, 5]), "mamba_cow_src_indices": None}
        space[name](of, SimpleNamespace(forward_mode=mode, mamba_cow_dst_indices=None, **told))
    slots = [one.tolist() for one in cleared]
    print(wheel, "cleared", slots, "" if slots == [[4, 5]] else "WRONG: expected [[4, 5]], by the prompts alone")
