"""Start SGLang in this process: its scheduler with workers, pools and graphs, between two ends of our own.

`recv_requests` and `send_to_detokenizer` are ours; the event loop between them is SGLang's own.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from draftproof.properties.lib.errors import ConditionError, DraftproofError
from draftproof.subjects.sglang.live import native

Kernels = Literal["native", "own"]
_ENVIRONMENT = {
    "SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK": "1",
    "SGLANG_IS_FLASHINFER_AVAILABLE": "false",
    "SGLANG_ENABLE_JIT_DEEPGEMM": "false",
    "NCCL_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "TRITON_F32_DEFAULT": "ieee",  # else products of float32 are those of TF32, which no bound lets pass
    "SGLANG_MAMBA_CONV_DTYPE": "float32",
}
MAX_ROWS, STATES = 8, 32
_GRAPH_ROWS = [1, 4]
"""Two rows and three are padded, five and more run eagerly."""


class SglangStartError(ConditionError, RuntimeError):
    """An SGLang that cannot be started here; the message says what was expected."""


class LoopLeftError(DraftproofError):
    """The way out of SGLang's endless loop: raised where it asks for requests, when there will be none."""


class SglangSpec(NamedTuple):
    """What an engine is started with: one in a process.

    `kernels` "native" are SGLang's own implementations of norms, activations and rotary embedding in torch: its kernels
    for these take no float32. `draft` is a folder, or "" for layers in the target's own.
    """

    model: str
    dtype: str
    algorithm: str
    draft: str
    steps: int
    page_size: int
    tokens: int
    graphs: bool
    overlap: bool
    radix: bool
    kernels: Kernels


def find(release: str, engines: str) -> None:
    """Put an unpacked release in front of what this Python imports. Raises SglangStartError."""
    told = Path(engines) / f"{release}.paths"
    if not told.is_file():
        there = ", ".join(sorted(one.stem for one in Path(engines).glob("*.paths"))) or "none"
        raise SglangStartError(
            f"no release {release!r} in {engines!r}: expected one that `draftproof lab engines unpack` has put there"
            f" ({there})"
        )
    sys.path[:0] = told.read_text().splitlines()


def set_environment() -> None:
    """Set what SGLang reads when it is imported, and what its kernels are compiled with, but what is set already."""
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})


def start(spec: SglangSpec) -> Any:
    """Return SGLang's Scheduler. Raises SglangStartError, and what SGLang raises."""
    set_environment()
    import torch

    if not torch.cuda.is_available():
        raise SglangStartError("SGLang needs a GPU, and torch finds none: expected a machine with one")
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.server_args import PortArgs, ServerArgs

    _know_mimo()
    if spec.kernels == "native":
        native.install()
    known = {field.name for field in dataclasses.fields(ServerArgs)}
    arguments = ServerArgs(**{name: value for name, value in _fields(spec).items() if name in known})
    given = {"server_args": arguments, "port_args": PortArgs.init_new(arguments), "gpu_id": 0, "dp_rank": None}
    names = list(inspect.signature(Scheduler.__init__).parameters)[1:]
    scheduler = Scheduler(**{name: given.get(name, 0) for name in names})
    # Of a scenario's requests each says itself what ends it.
    scheduler.model_config.hf_eos_token_id = None
    return scheduler


def _fields(spec: SglangSpec) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model_path": spec.model,
        "skip_tokenizer_init": True,
        "dtype": spec.dtype,
        "device": "cuda",
        "attention_backend": "triton",
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "page_size": spec.page_size,
        "max_total_tokens": spec.tokens,
        "max_running_requests": MAX_ROWS,
        "max_mamba_cache_size": STATES,
        "cuda_graph_bs": _GRAPH_ROWS,
        "cuda_graph_bs_decode": _GRAPH_ROWS,  # its name in 0.5.16
        "mem_fraction_static": 0.8,  # of pools, which max_total_tokens keeps small: others may use the GPU, too
        "chunked_prefill_size": spec.tokens,
        "disable_piecewise_cuda_graph": True,
        "disable_prefill_cuda_graph": True,  # its name in 0.5.16
        "disable_custom_all_reduce": True,
        "disable_radix_cache": not spec.radix,
        "disable_cuda_graph": not spec.graphs,
        "disable_overlap_schedule": not spec.overlap,
        "log_level": "error",
        "random_seed": 0,
        "speculative_algorithm": spec.algorithm,
        "speculative_num_steps": spec.steps,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": spec.steps + 1,
    }
    return fields | ({"speculative_draft_model_path": spec.draft} if spec.draft else {})


def _know_mimo() -> None:
    """Name the config of MiMo, which its published folders have as code of their own: that of Qwen2, and MTP layers."""
    from transformers import AutoConfig, Qwen2Config

    AutoConfig.register("mimo", type("MiMoConfig", (Qwen2Config,), {"model_type": "mimo"}), exist_ok=True)


def is_hybrid(path: str) -> bool:
    """Return whether a checkpoint has layers with a recurrent state."""
    return "linear_conv_kernel_dim" in (Path(path) / "config.json").read_text()


def serve(scheduler: Any, receive: Callable[[], list[Any]]) -> None:
    """Run SGLang's event loop until `receive` raises LoopLeftError. Answers are read from the requests themselves."""

    def received(*_: Any, **__: Any) -> list[Any]:
        return receive()

    scheduler.recv_requests = received
    scheduler.request_receiver = SimpleNamespace(recv_requests=received)
    getattr(scheduler, "ipc_channels", scheduler).send_to_detokenizer.send_output = lambda *_, **__: None
    try:
        if hasattr(scheduler, "run_event_loop"):
            scheduler.run_event_loop()
        else:
            from sglang.srt.managers.scheduler import dispatch_event_loop

            dispatch_event_loop(scheduler)
    except LoopLeftError:
        return


def request_of(name: str, prompt: tuple[int, ...], budget: int, stop: tuple[int, ...]) -> Any:
    """Return a request as SGLang's tokenizer hands it over."""
    import array

    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.sampling.sampling_params import SamplingParams

    limits = SamplingParams(max_new_tokens=budget, temperature=0.0, stop_token_ids=list(stop) or None)
    limits.normalize(None)
    fields: dict[str, Any] = {
        "rid": name,
        "input_text": "",
        "input_ids": list(prompt),
        "mm_inputs": None,
        "sampling_params": limits,
        "return_logprob": False,
        "logprob_start_len": -1,
        "top_logprobs_num": 0,
        "token_ids_logprob": None,
        "stream": False,
        "input_embeds": None,
        "token_type_ids": None,
    }
    if "array" in str(TokenizedGenerateReqInput.__annotations__["input_ids"]):  # 0.5.13 and later
        fields["input_ids"] = array.array("q", prompt)
    return TokenizedGenerateReqInput(**fields)
