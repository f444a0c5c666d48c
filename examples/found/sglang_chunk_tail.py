"""SGLang 0.5.13 to 0.5.23: at the end of a prompt's chunk chained layers embed a sampled token.

python sglang_chunk_tail.py UNPACKED_WHEEL
"""

import ast
import builtins
import sys
from collections import defaultdict
from pathlib import Path
from unittest.mock import MagicMock

import torch


def function(file, name, **names):  # by itself: what it asks of its module besides is a mock
    tree = ast.parse(Path(sys.argv[1], "sglang/srt/speculative", file).read_text())
    found = next(one for one in ast.walk(tree) if getattr(one, "name", "") == name)
    exec("from __future__ import annotations\n" + ast.unparse(found), names := defaultdict(MagicMock, names))
    return names[name]


batch = MagicMock(chunked_req="it", reqs=["it"], chunked_req_next_prompt_token=7, input_ids=torch.tensor([1, 2]))
batch.forward_mode.is_idle.return_value = False
tails = function("eagle_utils.py", "_eagle_prefill_tail_tokens", **vars(builtins))(batch, torch.tensor([9]))
print("sampled: 9; the prompt goes on with 7; the EAGLE worker embeds", int(tails[0]))
embeds = {"side_effect": lambda *given: sys.exit(f"the multi-layer worker embeds {int(given[3][0])}")}
rotate = {name: MagicMock(**embeds) for name in ("rotate_input_ids", "rotate_input_ids_triton")}
extend = function("multi_layer_eagle_worker_v2.py", "_draft_extend_for_prefill", **vars(builtins), **rotate)
extend(MagicMock(), batch, torch.zeros(2, 4), torch.tensor([9]))
