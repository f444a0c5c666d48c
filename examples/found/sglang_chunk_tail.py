"""SGLang 0.5.13 to 0.5.23: at the end of a prompt's chunk chained layers embed a sampled token.

python sglang_chunk_tail.py UNPACKED_WHEEL
"""

import ast
import builtins
import sys
from pathlib import Path
from unittest.mock import MagicMock

import torch


class Names(dict):
    def __missing__(self, name):  # what a function asks of its module besides is a mock
        return getattr(builtins, name, None) or MagicMock()


def call(file, name, *given, **names):
    tree = ast.parse(Path(sys.argv[1], "sglang/srt/speculative", file).read_text())
    (found,) = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name)
    body = [*ast.parse("from __future__ import annotations").body, found]
    exec(compile(ast.Module(body, []), file, "exec"), names := Names(names))
    return names[name](*given)


batch = MagicMock(chunked_req="it", reqs=["it"], chunked_req_next_prompt_token=7, input_ids=torch.tensor([1, 2]))
batch.forward_mode.is_idle.return_value = False
tails = call("eagle_utils.py", "_eagle_prefill_tail_tokens", batch, torch.tensor([9]))
print("sampled: 9; the prompt goes on with 7; the EAGLE worker embeds", int(tails[0]))
rotate = {"side_effect": lambda *given: sys.exit(f"the multi-layer worker embeds {int(given[3][0])}")}
extend = MagicMock(), batch, torch.zeros(2, 4), torch.tensor([9])
stop = {name: MagicMock(**rotate) for name in ("rotate_input_ids", "rotate_input_ids_triton")}
call("multi_layer_eagle_worker_v2.py", "_draft_extend_for_prefill", *extend, **stop)
