"""SGLang 0.5.13 on a GPU with a hybrid target, whose MTP layer drafts; a tiny Qwen3-Next.

python sglang_hybrid_live.py states TARGET: without graphs, a verify clears the states of the prompts before it
python sglang_hybrid_live.py buffers TARGET: with graphs, a batch above them frees what the draft's graphs write to
"""

import array
import dataclasses
import inspect
import os
import sys
import weakref
from types import SimpleNamespace

os.environ["SGLANG_IS_FLASHINFER_AVAILABLE"] = os.environ["SGLANG_ENABLE_JIT_DEEPGEMM"] = "false"
os.environ["NCCL_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
os.environ["SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK"] = os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from sglang.srt.layers.attention.hybrid_linear_attn_backend import MambaAttnBackendBase
from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import PortArgs, ServerArgs
from transformers import AutoModelForCausalLM

WHICH, TARGET = sys.argv[1:]
# Greedy texts of these have no near ties: in float32 the best logit is 0.45 above the next, at least.
PROMPTS = [
    [44, 39, 4, 64, 58, 58, 23, 63, 2],
    [55, 14, 16, 7, 26, 53],
    [25, 59, 11, 43, 12, 61, 51, 21, 37, 29, 46, 61, 29, 62],
]
COUNT = 12


class LoopLeft(Exception):
    pass


def request(name, prompt, count):
    sampling = SamplingParams(max_new_tokens=count, temperature=0.0, ignore_eos=True)
    sampling.normalize(None)
    required = [field.name for field in dataclasses.fields(TokenizedGenerateReqInput) if _is_required(field)]
    fields = dict.fromkeys(required)
    fields |= {"rid": name, "input_text": "", "input_ids": array.array("q", prompt), "sampling_params": sampling}
    fields |= {"return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0, "stream": False}
    return TokenizedGenerateReqInput(**fields)


def _is_required(field):
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def served(prompts, count=COUNT):
    """Return the tokens of requests that come at once, to an engine whose pools were emptied."""
    texts = {str(number): [] for number in range(len(prompts))}
    missing = set(texts)
    waiting = [request(name, prompt, count) for name, prompt in zip(texts, prompts, strict=True)]

    def receive():
        if len(waiting) == len(prompts):
            scheduler.flush_cache()
        # A batch that an overlap ran behind the end is pending still, and nothing is flushed beside it.
        if not missing and scheduler.last_batch is None:
            raise LoopLeft
        now, waiting[:] = list(waiting), []
        return now

    def send(output, *_, **__):
        for place, name in enumerate(getattr(output, "rids", None) or ()):
            texts[name] += list(output.output_ids[place])
            if output.finished_reasons[place] is not None:
                missing.discard(name)

    scheduler.request_receiver = SimpleNamespace(recv_requests=receive)
    scheduler.ipc_channels.send_to_detokenizer.send_output = send
    try:
        scheduler.run_event_loop()
    except LoopLeft:
        return list(texts.values())


arguments = ServerArgs(
    model_path=TARGET,
    skip_tokenizer_init=True,
    dtype="bfloat16",
    attention_backend="triton",
    sampling_backend="pytorch",
    grammar_backend="none",
    max_total_tokens=4096,
    max_running_requests=8,
    max_mamba_cache_size=32,
    mem_fraction_static=0.3,
    cuda_graph_bs=[1, 4],
    disable_cuda_graph=WHICH == "states",
    disable_piecewise_cuda_graph=True,
    disable_radix_cache=True,
    log_level="error",
    random_seed=0,
    speculative_algorithm="EAGLE",
    speculative_eagle_topk=1,
    speculative_num_steps=3,
    speculative_num_draft_tokens=4,
)
made = {"server_args": arguments, "port_args": PortArgs.init_new(arguments), "gpu_id": 0, "dp_rank": None}
_, *names = inspect.signature(Scheduler.__init__).parameters
scheduler = Scheduler(**{name: made.get(name, 0) for name in names})

if WHICH == "states":
    released, again = served(PROMPTS), served(PROMPTS)
    deferred = MambaAttnBackendBase._execute_deferred_mamba_cow_and_clear

    def in_prompts_alone(backend, batch):
        if not batch.forward_mode.is_target_verify():
            deferred(backend, batch)

    MambaAttnBackendBase._execute_deferred_mamba_cow_and_clear = in_prompts_alone
    mended = served(PROMPTS)
    model = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()
    for number, prompt in enumerate(PROMPTS):
        whole = torch.tensor([prompt])
        with torch.no_grad():
            for _ in range(COUNT):
                whole = torch.cat([whole, model(whole).logits[:, -1:].argmax(-1)], dim=1)
        print("prompt of", len(prompt), "tokens, transformers in float32", whole[0, len(prompt) :].tolist())
        print("  as released      ", released[number])
        print("  again            ", again[number])
        print("  no clear in verify", mended[number])
else:
    cache = scheduler.draft_worker.draft_worker.draft_runner._eager_decode_registry
    captured = weakref.ref(cache.registry)
    places = [slot.buffer.data_ptr() for slot in cache.registry._slots.values() if slot.buffer is not None]
    print("captured:", len(places), "buffers for", cache.max_bs, "requests")
    served(PROMPTS)
    print("after 3 requests: they are", "gone" if captured() is None else "there")
    served(PROMPTS * 2 + PROMPTS[:2])
    print("after 8 requests: they are", "gone" if captured() is None else "there")
    try:
        served(PROMPTS)  # it flushes first, which gives memory back
        torch.cuda.synchronize()
        print("3 requests again: ended well")
    except torch.AcceleratorError as error:
        print("3 requests again:", str(error).splitlines()[0])
    # The snapshot is the host's: it can be read after such an error.
    segments = [(one["address"], one["address"] + one["total_size"]) for one in torch.cuda.memory_snapshot()]
    print("mapped of them:", sum(any(first <= place < end for first, end in segments) for place in places))
sys.stdout.flush()
os._exit(0)
