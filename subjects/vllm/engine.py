"""Start vLLM in this process: one engine at a time, for one model, draft and number of drafts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.drafts import CheckpointDraft, Ngram, algorithm
from draftproof.properties.values.scenario import Checkpoint, Scenario

Runner = Literal["v1", "v2", "default"]
Rotary = Literal["kernel", "native"]
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",  # of a scenario that comes up to the positions of the model
    "OMP_NUM_THREADS": "1",
}
_METHODS = {"standalone": "draft_model", "eagle": "eagle", "eagle3": "eagle3"}
_ROUND_UP = 256
_CACHE_BYTES = 1 << 28
_MOST_TOKENS = 4096
"""Tokens of one step for which buffers are allocated. What a step may really have is the scheduler's token budget."""


class EngineStartError(DraftproofError, ValueError):
    """A scenario that vLLM cannot be started for; the message says what was expected."""


class EngineSpec(NamedTuple):
    """What an engine is started with; scenarios with the same run on one.

    `max_len` is vLLM's `max_model_len`, `rows` its `max_num_seqs`: the scheduler of a run has no more than it may have.
    `rotary` "native" is rotary embedding by torch in place of vLLM's kernel; `overlapped` is asynchronous scheduling.
    """

    model: str
    dtype: str
    draft: tuple[tuple[str, Any], ...]
    page_size: int
    pages: int
    max_len: int
    rows: int
    runner: Runner
    rotary: Rotary = "kernel"
    prefix_cache: bool = False
    overlapped: bool = False


def speculative(scenario: Scenario, model: Checkpoint, *, padded: bool) -> dict[str, Any]:
    """Return vLLM's `speculative_config` for the draft of a scenario. Raises EngineStartError."""
    draft = scenario.draft
    count: dict[str, Any] = {"num_speculative_tokens": scenario.steps}
    if isinstance(draft, Ngram):
        if draft.match != "earliest":
            raise EngineStartError("invalid match 'latest' of an n-gram draft: expected earliest, which is vLLM's rule")
        return {"method": "ngram", "prompt_lookup_max": draft.max_n, "prompt_lookup_min": draft.min_n, **count}
    assert isinstance(draft, CheckpointDraft)  # the limits allow no other
    if not padded:
        count["disable_padded_drafter_batch"] = True
    if draft.built_in:
        # It wants a multiple of the layers, although it runs the first of them again and again.
        layers = _config(model.path).get("num_nextn_predict_layers") or 1
        return {"method": "mtp", **count, "num_speculative_tokens": -(-scenario.steps // layers) * layers}
    if not draft.path:
        raise EngineStartError(
            "invalid draft, made up from a seed: expected one in a folder, as `draftproof lab head write` makes it"
        )
    return {"method": _METHODS[algorithm(draft)], "model": draft.path, **count}


def room_for(scenario: Scenario, model: Checkpoint) -> int:
    """Return a `max_model_len` that no request of a scenario comes near, the same for many scenarios.

    It is more than the positions of the model only where a request comes up to these.
    """
    needed = scenario.memory.max_len + 2 * scenario.steps + 2
    most = _config(model.path).get("max_position_embeddings") or needed
    return max(needed, min(most, -(-needed // _ROUND_UP) * _ROUND_UP))


def is_compressed(model: str) -> bool:
    """Return whether attention is compressed: what its cache keeps are no keys and values."""
    return bool(_config(model).get("kv_lora_rank"))


def _config(model: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((Path(model) / "config.json").read_text())
    return read


def lacks_triton() -> bool:
    """Return whether vLLM finds no Triton that runs here, without which its runner V2 does not start."""
    from vllm.triton_utils import HAS_TRITON

    return not HAS_TRITON


def start(spec: EngineSpec) -> Any:
    """Return an LLMEngine that this process steps. Raises what vLLM raises."""
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    if spec.runner != "default":
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(spec.runner == "v2"))
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    _know_mimo(spec.model)
    # Of compressed attention the one for CPUs that have AMX takes bfloat16 only.
    backend: dict[str, Any] = {"attention_backend": "CPU_MLA"} if is_compressed(spec.model) else {}
    arguments = EngineArgs(
        model=spec.model,
        dtype=spec.dtype,
        skip_tokenizer_init=True,
        max_model_len=spec.max_len,
        max_num_seqs=spec.rows,
        max_num_batched_tokens=_MOST_TOKENS,
        num_gpu_blocks_override=spec.pages + 1,
        block_size=spec.page_size,
        kv_cache_memory_bytes=_CACHE_BYTES,
        enforce_eager=True,
        async_scheduling=spec.overlapped,
        enable_prefix_caching=spec.prefix_cache,
        disable_log_stats=True,
        seed=0,
        speculative_config=dict(spec.draft) | backend,
        **backend,
        **({"compilation_config": {"custom_ops": ["-rotary_embedding"]}} if spec.rotary == "native" else {}),
    )
    engine = LLMEngine.from_engine_args(arguments)
    _register_once()
    return engine


def stop(engine: Any) -> None:
    """Free an engine. What vLLM keeps for the process, its groups of one process and its kernels, stays."""
    engine.engine_core.shutdown()


def _register_once() -> None:
    """Leave kernels as the first engine has registered them: a second time trips over what the first put in place."""
    from vllm.platforms import current_platform

    kind = type(current_platform)
    if hasattr(kind, "register_triton_kernel_overrides"):
        kind.register_triton_kernel_overrides = classmethod(lambda _: None)


def _know_mimo(model: str) -> None:
    """Have transformers read MiMo's config.json: its class is code in the published repository, and a Qwen2's."""
    from transformers import AutoConfig, Qwen2Config

    if _config(model).get("model_type") != "mimo":
        return
    kind = type("MimoConfig", (Qwen2Config,), {"model_type": "mimo"})
    AutoConfig.register("mimo", kind, exist_ok=True)
