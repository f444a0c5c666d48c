"""SGLang 0.5.11 and 0.5.12, Triton attention: in a graph a draft extend has its own rows among those before it, too.

python sglang_extend_counted_twice.py UNPACKED_WHEEL...

Two requests with 9 and 14 entries extend the draft by four rows each. The kernel adds these by itself.
"""

import ast
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch


class ListingKernel:
    """Stands for the kernel that lists the entries before: its third argument says how many."""

    def __getitem__(self, grid):
        return lambda *given: before.append(given[2].tolist())


before = []
for wheel in sys.argv[1:]:
    text = (Path(wheel) / "sglang/srt/layers/attention/triton_backend.py").read_text(encoding="utf-8")
    (backend,) = (one for one in ast.parse(text).body if getattr(one, "name", "") == "TritonAttnBackend")
    methods = {one.name: one for one in backend.body if isinstance(one, ast.FunctionDef)}
    late = "_update_draft_extend_buffers", "_fill_kv_indptr_and_indices"
    early = "init_forward_metadata_replay_cuda_graph"
    is_late = late[0] in methods
    backend.bases, backend.body = [], [methods[name] for name in (late if is_late else (early,))]
    space = {"torch": torch, "create_flashinfer_kv_indices_triton": ListingKernel()}
    exec("from __future__ import annotations\n" + ast.unparse(backend), space)
    one = space["TritonAttnBackend"]()
    one.device, one.num_draft_tokens, one.speculative_num_steps = "cpu", 4, 3
    one.qo_indptr, one.kv_indptr = torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    one.cuda_graph_kv_indices, one.req_to_token = torch.zeros(64, dtype=torch.int64), torch.zeros(3, 64)
    mode = MagicMock(**{"is_decode_or_idle.return_value": False, "is_target_verify.return_value": False})
    # As the worker and its graph runner pass them: lengths with the rows that are extended.
    extend = SimpleNamespace(extend_seq_lens_tensor=torch.tensor([4, 4]))
    given = {
        "bs": 2,
        "req_pool_indices": torch.tensor([1, 2]),
        "seq_lens": torch.tensor([13, 18]),
        "seq_lens_sum": 31,
        "encoder_lens": None,
        "forward_mode": mode,
        "spec_info": extend,
        "seq_lens_cpu": torch.tensor([13, 18]),
    }
    name = late[0] if is_late else early
    getattr(one, name)(**{told.arg: given[told.arg] for told in methods[name].args.args[1:]})
    got = before.pop()
    print(wheel, "entries before:", got, "" if got == [9, 14] else "WRONG: expected [9, 14]")
