"""SGLang 0.5.22 and 0.5.23: unified memory has room for the verify rows of the first step count only.

python sglang_unified_memory.py UNPACKED_WHEEL
"""

import ast
import sys
from pathlib import Path
from types import SimpleNamespace as Has
from unittest.mock import MagicMock


def call(name, given, **names):
    tree = ast.parse(Path(sys.argv[1], "sglang/srt/mem_cache/kv_cache_configurator.py").read_text())
    (found,) = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name)
    body = [*ast.parse("from __future__ import annotations").body, found]
    exec(compile(ast.Module(body, []), name, "exec"), names)
    names[name](MagicMock(page_size=1), **given)


# A server with steps 1, 3 and 7 that starts with 3: it verifies 4 rows of a request at first, and 8 at most.
spec = Has(speculative_num_draft_tokens=4, speculative_algorithm="EAGLE", speculative_eagle_topk=1)
names = {f"get_{one}": MagicMock() for one in ("schedule", "exec", "disagg", "parallel", "memory")}
names |= {"get_spec": lambda: spec, "max_speculative_num_draft_tokens": lambda: 8}
names |= {"_should_enable_lazy_compaction": MagicMock(), "_pd_prefill_skips_mamba_spec_state": lambda: False}
told = {"HybridReqToTokenPool": MagicMock(), "init_unified_mamba_pools": MagicMock()}
sys.modules["sglang.srt.mem_cache.unified_memory_pool"] = Has(**told)
call("_build_hybrid_req_pool", {"max_num_reqs": 2, "extra_max_context_len": 0}, **names, **told)
call("_init_unified_mamba_pools", {"max_num_reqs": 2, "max_total_num_tokens": 1}, **names)
print({name: pool.call_args.kwargs["speculative_num_draft_tokens"] for name, pool in told.items()})
