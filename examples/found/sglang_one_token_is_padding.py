"""SGLang 0.5.9 to 0.5.13.post1: in the graphs of a hybrid's verify, a request with one token counts as a padded row.

python sglang_one_token_is_padding.py UNPACKED_WHEEL...

Three requests, no padding, of 9, 1 and 14 tokens, with states in slots 4, 5 and 6.
"""

import ast
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch

SLOTS = torch.tensor([0, 4, 5, 6], dtype=torch.int32)
FILE = "sglang/srt/layers/attention/hybrid_linear_attn_backend.py"
for wheel in sys.argv[1:]:
    text = (Path(wheel) / FILE).read_text(encoding="utf-8")
    (method,) = (
        node
        for cls in ast.parse(text).body
        if isinstance(cls, ast.ClassDef) and cls.name == "MambaAttnBackendBase"
        for node in cls.body
        if isinstance(node, ast.FunctionDef) and node.name == "_replay_metadata"
    )
    space = {"torch": torch, "ForwardMetadata": SimpleNamespace}
    exec("from __future__ import annotations\n" + textwrap.dedent(ast.get_source_segment(text, method)), space)
    rows = 3
    backend = SimpleNamespace(
        topk=1,
        get_cuda_graph_seq_len_fill_value=lambda: 1,
        req_to_token_pool=SimpleNamespace(get_mamba_indices=lambda requests: SLOTS[requests]),
        state_indices_list=[torch.full((n + 1,), -9, dtype=torch.int32) for n in range(rows)],
        query_start_loc_list=[torch.zeros(n + 2, dtype=torch.int32) for n in range(rows)],
        cached_cuda_graph_verify_query_start_loc=torch.arange(0, 40, 4, dtype=torch.int32),
    )
    mode = MagicMock(**{"is_decode_or_idle.return_value": False, "is_target_verify.return_value": True})
    verify = SimpleNamespace(draft_token_num=4, topk=1)
    # Later releases are told by their runner how many rows it has added.
    told = {"num_padding": 0} if "num_padding" in [one.arg for one in method.args.args] else {}
    made = space["_replay_metadata"](
        backend, rows, torch.tensor([1, 2, 3]), mode, verify, torch.tensor([9, 1, 14]), **told
    )
    starts, states = made.query_start_loc.tolist(), made.mamba_cache_indices.tolist()
    print(wheel, "states in", states, "tokens from", starts, "" if states == [4, 5, 6] else "WRONG: expected 4, 5, 6")
