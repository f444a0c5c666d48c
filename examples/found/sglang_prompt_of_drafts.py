"""SGLang 0.5.13: what a draft model is given of a prompt. On a GPU; a tiny MiMo, or two models of one vocabulary.

python sglang_prompt_of_drafts.py mimo TARGET
python sglang_prompt_of_drafts.py standalone TARGET DRAFT
"""

import array
import contextlib
import dataclasses
import inspect
import os
import sys
from types import SimpleNamespace

os.environ["SGLANG_IS_FLASHINFER_AVAILABLE"] = os.environ["SGLANG_ENABLE_JIT_DEEPGEMM"] = "false"
os.environ["NCCL_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"

import torch
from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import PortArgs, ServerArgs
from transformers import AutoConfig, Qwen2Config, Qwen2ForCausalLM

WHICH, TARGET, *DRAFT = sys.argv[1:]
PROMPT, SEEN, LOAD = [5, 9, 17, 3, 40, 22, 8, 61], [], ModelRunner.load_model
TURNS = iter(range(60))
AutoConfig.register("mimo", type("MiMoConfig", (Qwen2Config,), {"model_type": "mimo"}), exist_ok=True)


class LoopLeft(Exception):
    pass


def load(runner, *given, **named):
    LOAD(runner, *given, **named)
    forward = runner.model.forward

    def watched(ids, positions, batch, *rest, **others):
        if runner.is_draft_worker and batch.forward_mode.name == "EXTEND":
            states = getattr(batch.spec_info, "hidden_states", None)
            SEEN.append((ids.tolist(), positions.tolist(), None if states is None else states.float().cpu()))
        return forward(ids, positions, batch, *rest, **others)

    runner.model.forward = watched


def receive():
    if (now := next(TURNS, None)) is None:
        raise LoopLeft
    sampling = SamplingParams(max_new_tokens=4, temperature=0.0)
    sampling.normalize(None)
    fields = {field.name: None for field in dataclasses.fields(TokenizedGenerateReqInput) if _is_required(field)}
    fields |= {"rid": "0", "input_text": "", "input_ids": array.array("q", PROMPT), "sampling_params": sampling}
    fields |= {"return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0, "stream": False}
    return [] if now else [TokenizedGenerateReqInput(**fields)]


def _is_required(field):
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


ModelRunner.load_model = load
arguments = ServerArgs(
    model_path=TARGET,
    skip_tokenizer_init=True,
    dtype="bfloat16",
    attention_backend="triton",
    sampling_backend="pytorch",
    grammar_backend="none",
    max_total_tokens=4096,
    max_running_requests=4,
    mem_fraction_static=0.3,
    disable_cuda_graph=True,
    disable_piecewise_cuda_graph=True,
    disable_radix_cache=True,
    log_level="error",
    speculative_algorithm="EAGLE" if WHICH == "mimo" else "STANDALONE",
    speculative_draft_model_path=DRAFT[0] if DRAFT else None,
    speculative_eagle_topk=1,
    speculative_num_steps=3,
    speculative_num_draft_tokens=4,
)
made = {"server_args": arguments, "port_args": PortArgs.init_new(arguments), "gpu_id": 0, "dp_rank": None}
_, *names = inspect.signature(Scheduler.__init__).parameters
scheduler = Scheduler(**{name: made.get(name, 0) for name in names})
scheduler.request_receiver = SimpleNamespace(recv_requests=receive)
scheduler.ipc_channels.send_to_detokenizer.send_output = lambda *given, **named: None
with contextlib.suppress(LoopLeft):
    scheduler.run_event_loop()
ids, positions, states = next(seen for seen in SEEN if len(seen[0]) == len(PROMPT))
print("prompt     ", PROMPT)
print("draft's ids", ids, "at positions", positions)
if WHICH == "mimo":
    model, norm = Qwen2ForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval(), []
    model.model.norm.register_forward_hook(lambda _, given, returned: norm.extend((given[0][0], returned[0])))
    with torch.no_grad():
        model(torch.tensor([PROMPT]))
    for where, wanted in zip(("before", "after"), norm, strict=True):
        distance = (states - wanted).norm() / wanted.norm()
        print(f"distance from the target's states {where} its final norm: {distance:.4f}")
sys.stdout.flush()
os._exit(0)
