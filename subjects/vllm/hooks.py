"""The places of vLLM that the adapter holds on to, and the channels that each carries: a release may lack some."""

from __future__ import annotations

import importlib
from functools import cache, reduce

from draftproof.properties.values.subject import Hook

_DRAFTER = "draft.step.ids draft.step.positions draft.step.proposal extend.ids extend.positions extend.proposal"
_HIDDEN = "draft.step.hidden_in extend.hidden_in"
_TABLE = (
    ("scheduling", "vllm.v1.core.sched.scheduler", "Scheduler.schedule", "round.rows"),
    ("page tables", "vllm.v1.core.kv_cache_manager", "KVCacheManager.get_block_ids", "round.table"),
    (
        "acceptance",
        "vllm.v1.core.sched.scheduler",
        "Scheduler.update_from_output",
        "accept.correct_len accept.index accept.bonus accept.emitted commit.length",
    ),
    (
        "drafts of the next round",
        "vllm.v1.core.sched.scheduler",
        "Scheduler.update_draft_token_ids",
        "propose.tokens round.drafts",
    ),
    (
        "forwards of the target",
        "vllm.v1.worker.cpu_model_runner",
        "CPUModelRunner",
        "verify.ids verify.positions verify.hidden verify.choice",
    ),
    ("forwards of the drafter", "vllm.v1.worker.gpu_model_runner", "GPUModelRunner.propose_draft_token_ids", _DRAFTER),
    ("hidden states of the drafter", "vllm.v1.spec_decode.eagle", "EagleProposer.propose", _HIDDEN),
    ("slots", "vllm.forward_context", "get_forward_context", "verify.slots draft.step.slots extend.slots"),
    (
        "writing of KV entries",
        "vllm.v1.attention.backends.cpu_attn",
        "CPUAttentionBackendImpl.do_kv_cache_update",
        "commit.kv extend.kv",
    ),
)


@cache
def hooks() -> tuple[Hook, ...]:
    """Return every hook, and whether this release has it. Imports vLLM."""
    return tuple(
        Hook(name=name, found=_is_there(module, path), channels=tuple(channels.split()), where=f"{module}:{path}")
        for name, module, path, channels in _TABLE
    )


def carried() -> frozenset[str]:
    """Return the channels that the hooks of this release carry."""
    return frozenset(channel for hook in hooks() if hook.found for channel in hook.channels)


def _is_there(module: str, path: str) -> bool:
    try:
        reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return False
    return True
