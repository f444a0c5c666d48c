"""SGLang 0.5.9 to 0.5.10.post1: a batch that no graph was captured for reads behind the ends of the graphs' buffers.

python sglang_batch_above_graphs.py UNPACKED_WHEEL    # 0.5.11: 3 requests, as many lengths
"""

import ast
import builtins
import sys
from collections import defaultdict
from pathlib import Path
from unittest.mock import MagicMock


def assigned(states, rows, pool, size, requests, lengths, starts):
    sys.exit(f"{requests} requests are read, of buffers with {len(rows)} rows of requests and {len(lengths)} lengths")


tree = ast.parse(Path(sys.argv[1], "sglang/srt/speculative/multi_layer_eagle_worker_v2.py").read_text())
extend = next(one for one in ast.walk(tree) if getattr(one, "name", "") == "_draft_extend_for_decode")
names = defaultdict(MagicMock, vars(builtins), assign_hidden_states_pool_triton=assigned)
exec("from __future__ import annotations\n" + ast.unparse(extend), names)  # what it asks for besides is a mock
two, three = (dict.fromkeys(("req_pool_indices", "extend_seq_lens"), [1] * requests) for requests in (2, 3))
made = names["EagleDraftInput"].return_value
made.prepare_for_extend_to_fill_draft_kvcache.return_value = MagicMock(batch_size=3, **three)
graphs = MagicMock(can_run=lambda batch: False)  # captured for two requests at most
graphs.get_last_runner.return_value = MagicMock(buffers=MagicMock(**two), **two)
worker = MagicMock(cuda_graph_runner_for_draft_extend=graphs, speculative_num_steps=1, device="cpu")
names["fast_topk"].return_value = MagicMock(), MagicMock()
names["_draft_extend_for_decode"](worker, MagicMock(), MagicMock())
