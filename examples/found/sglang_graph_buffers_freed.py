"""SGLang 0.5.13 and .post1: a batch above the graphs frees the buffers that the draft's graphs were captured with.

python sglang_graph_buffers_freed.py UNPACKED_WHEEL...
"""

import ast
import sys
import textwrap
import weakref
from pathlib import Path
from types import SimpleNamespace

import torch

for wheel in sys.argv[1:]:
    text = (Path(wheel) / "sglang/srt/model_executor/model_runner.py").read_text(encoding="utf-8")
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    found = [node for node in found if node.name == "_ensure_eager_registry"]
    if not found:
        print(wheel, "has no buffers that grow")
        continue
    space = {"next_power_of_2": lambda n: 1 << (n - 1).bit_length()}
    exec("from __future__ import annotations\n" + textwrap.dedent(ast.get_source_segment(text, found[0])), space)

    def build(rows, tokens):
        return SimpleNamespace(ids=torch.zeros(tokens), positions=torch.zeros(tokens))

    cache = SimpleNamespace(registry=None, max_bs=0, max_num_tokens=0)
    captured = weakref.ref(
        space["_ensure_eager_registry"](None, cache, 4, 4, build).ids
    )  # what a graph of 4 rows holds
    space["_ensure_eager_registry"](None, cache, 8, 8, build)
    print(wheel, "after a batch of 8:", "the captured buffers are FREED" if captured() is None else "they stay")
