"""SGLang 0.5.9 to 0.5.10.post1: a batch that no graph was captured for reads behind the ends of the graphs' buffers.

python sglang_batch_above_graphs.py UNPACKED_WHEEL    # 0.5.11: 3 requests, as many lengths
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


def assigned(states, rows, pool, size, requests, lengths, starts):
    sys.exit(f"{requests} requests are read, of buffers with {len(rows)} rows of requests and {len(lengths)} lengths")


file = Path(sys.argv[1], "sglang/srt/speculative/multi_layer_eagle_worker_v2.py")
found = [one for one in ast.walk(ast.parse(file.read_text())) if getattr(one, "name", "") == "_draft_extend_for_decode"]
body = [*ast.parse("from __future__ import annotations").body, *found[:1]]
names = Names(assign_hidden_states_pool_triton=assigned, torch=torch, EagleDraftInput=MagicMock())
exec(compile(ast.Module(body, []), str(file), "exec"), names)
three = {name: torch.ones(3) for name in ("extend_seq_lens", "extend_start_loc", "req_pool_indices")}
made = names["EagleDraftInput"].return_value.prepare_for_extend_to_fill_draft_kvcache
made.return_value = MagicMock(batch_size=3, **three)
graphs = MagicMock(can_run=lambda batch: False)  # captured for two requests at most
two = {name: torch.ones(2) for name in three}
graphs.get_last_runner.return_value = MagicMock(buffers=MagicMock(**two), **two)
worker = MagicMock(cuda_graph_runner_for_draft_extend=graphs, speculative_num_steps=1, device="cpu")
batch, result = MagicMock(seq_lens=torch.ones(3)), MagicMock(accept_lens=torch.ones(3, dtype=torch.int64))
worker.draft_runner_list[0].forward.return_value.logits_output.next_token_logits = torch.zeros(12, 4)
names["fast_topk"] = lambda probs, count, dim: probs.topk(1)
names["_draft_extend_for_decode"](worker, batch, result)
