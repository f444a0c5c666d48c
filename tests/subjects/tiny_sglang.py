"""A hand-made wheel that stands for a release of SGLang: functions of the same shapes, and nothing else of it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.subjects.tiny_sglang_more import MORE

FILES = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/model_executor/__init__.py": "",
    "sglang/srt/model_executor/input_buffers.py": """
_forward_input_buffer_pool = {}

def shared(name, buffer):
    old = _forward_input_buffer_pool.get(name)
    if old is None or old.numel() < buffer.numel():
        _forward_input_buffer_pool[name] = old = buffer
    return old[: buffer.numel()]
""",
    "sglang/srt/model_executor/forward_batch_info.py": """
from dataclasses import dataclass
from enum import IntEnum, auto
import sgl_kernel
import torch

class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()
    TARGET_VERIFY = auto()
    DRAFT_EXTEND_V2 = auto()

class CaptureHiddenMode(IntEnum):
    LAST = auto()
    FULL = auto()

@dataclass
class ForwardBatch:
    forward_mode: ForwardMode
    batch_size: int
    req_pool_indices: object
    seq_lens: object
    out_cache_loc: object
    positions: object = None
    spec_info: object = None
    input_ids: object = None
    extend_seq_lens: object = None
    capture_hidden_mode: object = None

    @classmethod
    def init_new(cls, batch, runner):
        starts, lengths = batch.extend_prefix_lens, batch.extend_seq_lens
        positions = torch.cat([torch.arange(start, start + count) for start, count in zip(starts, lengths)])
        return cls(batch.forward_mode, len(lengths), batch.req_pool_indices, batch.seq_lens, batch.out_cache_loc,
                   positions, batch.spec_info, batch.input_ids, lengths, batch.capture_hidden_mode)
""",
    "sglang/srt/speculative/__init__.py": "",
    "sglang/srt/speculative/spec_info.py": """
class SpeculativeAlgorithm:
    @classmethod
    def from_string(cls, name):
        return cls()
""",
    "sglang/srt/speculative/eagle_info.py": """
class EagleDraftInput:
    def __init__(self, topk_p=None, topk_index=None, hidden_states=None):
        self.topk_p, self.topk_index, self.hidden_states = topk_p, topk_index, hidden_states
""",
    "sglang/srt/speculative/eagle_worker_v2.py": """
import torch
from sgl_kernel import fast_topk
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.eagle_info import EagleDraftInput

class EagleDraftWorker:
    def __init__(self):
        raise RuntimeError("needs a server")

    def _draft_extend_for_prefill(self, batch, target_hidden_states, next_token_ids):
        start = 0
        for i, length in enumerate(batch.extend_seq_lens):
            tail = next_token_ids[i]
            if batch.chunked_req is not None and batch.reqs[i] is batch.chunked_req:
                tail = torch.tensor(batch.chunked_req_next_prompt_token)
            ids = batch.input_ids[start : start + length]
            batch.input_ids[start : start + length] = torch.cat((ids[1:], tail.reshape(1)))
            start += length
        batch.spec_info = EagleDraftInput(hidden_states=target_hidden_states)
        out = self.draft_runner.forward(ForwardBatch.init_new(batch, self.draft_runner)).logits_output
        return EagleDraftInput(None, torch.argmax(out.next_token_logits, dim=-1, keepdim=True), out.hidden_states)

    def _draft_extend_for_decode(self, batch, batch_result):
        width, rows = self.speculative_num_draft_tokens, len(batch.seq_lens)
        select_index = torch.arange(rows) * width + batch_result.accept_lens - 1
        batch.spec_info = EagleDraftInput(hidden_states=batch_result.logits_output.hidden_states)
        batch.input_ids, batch.extend_seq_lens = batch_result.next_token_ids, [width] * rows
        batch.extend_prefix_lens = batch.seq_lens_cpu.tolist()
        batch.forward_mode, batch.capture_hidden_mode = ForwardMode.DRAFT_EXTEND_V2, CaptureHiddenMode.FULL
        forward_batch = ForwardBatch.init_new(batch, self.draft_runner)
        graphs = self.cuda_graph_runner_for_draft_extend
        if graphs and graphs.can_run(forward_batch):
            out = graphs.replay(forward_batch)
        else:
            out = self.draft_runner.forward(forward_batch, skip_attn_backend_init=True).logits_output
        chosen = out.next_token_logits[select_index]
        batch_result.next_draft_input.topk_index = torch.argmax(chosen, dim=-1, keepdim=True)
        batch_result.next_draft_input.hidden_states = out.hidden_states[select_index]

    def draft_forward(self, forward_batch):
        info, steps = forward_batch.spec_info, self.speculative_num_steps
        token, hidden = info.topk_index, info.hidden_states
        if self.hot_token_id is not None:
            token = self.hot_token_id[token]
        slots = forward_batch.out_cache_loc.view(forward_batch.batch_size, steps)
        tokens = [token]
        for i in range(steps - 1):
            forward_batch.input_ids = token.flatten()
            forward_batch.out_cache_loc = slots[:, i]
            forward_batch.attn_backend = self.draft_attn_backend.attn_backends[i]
            info.hidden_states = hidden
            out = self.draft_runner.forward(forward_batch, skip_attn_backend_init=True).logits_output
            forward_batch.positions.add_(1)
            token = torch.softmax(out.next_token_logits, dim=-1).topk(1).indices
            if self.hot_token_id is not None:
                token = self.hot_token_id[token]
            hidden = out.hidden_states
            tokens.append(token)
        return None, None, torch.cat(tokens, dim=1)

class EAGLEWorkerV2:
    @property
    def target_worker(self):
        return self._target_worker

    def _mamba_verify_update(self, batch, verify_input, accept_lens, accept_index, bs):
        self.target_worker.model_runner.attn_backend.update_mamba_state_after_mtp_verify(
            accepted_steps=accept_lens - 1, mamba_track_indices=batch.mamba_track_indices
        )
""",
    "sglang/srt/layers/__init__.py": "",
    "sglang/srt/layers/attention/__init__.py": "",
    "sglang/srt/layers/attention/hybrid_linear_attn_backend.py": """
def fused_mamba_state_scatter_with_mask(dst, src, slots, steps):
    raise ValueError("needs a GPU")

class HybridLinearAttnBackend:
    def update_mamba_state_after_mtp_verify(self, accepted_steps, mamba_track_indices):
        slots = self.linear_attn_backend.forward_metadata.mamba_cache_indices
        caches = self.linear_attn_backend.req_to_token_pool.get_speculative_mamba2_params_all_layers()
        fused_mamba_state_scatter_with_mask(caches.temporal, caches.intermediate_ssm, slots, accepted_steps)
        fused_mamba_state_scatter_with_mask(caches.conv[0], caches.intermediate_conv_window[0], slots, accepted_steps)
""",
    "sglang/srt/models/__init__.py": "",
    "sglang/srt/models/qwen3_next_mtp.py": """
import copy
from torch import nn
from not_installed_layers import Qwen3NextModel

class Qwen3NextForCausalLMMTP(nn.Module):
    def __init__(self, config, quant_config=None, prefix=""):
        super().__init__()
        config = copy.deepcopy(config)
        config.num_hidden_layers = 1
        config.full_attention_interval = 1
        self.model = Qwen3NextModel(config, is_nextn=True)
""",
    "sglang/srt/speculative/eagle_draft_cuda_graph_runner.py": """
import torch
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.input_buffers import shared
from sglang.srt.speculative.eagle_info import EagleDraftInput

def get_batch_sizes_to_capture(runner):
    raise RuntimeError("needs a server")

class EAGLEDraftCudaGraphRunner:
    def __init__(self, worker):
        self.worker, runner = worker, worker.draft_runner
        self.capture_bs, _ = get_batch_sizes_to_capture(runner)
        most, self.steps = max(self.capture_bs), worker.speculative_num_steps
        ints = lambda *shape: torch.zeros(shape, dtype=torch.int64)
        self.slots = shared("slots", ints(most * self.steps))
        self.positions, self.req_rows = ints(most), ints(most)
        self.seq_lens, self.topk_index = torch.ones(most, dtype=torch.int64), ints(most, 1)
        self.hidden = torch.zeros((most, runner.model_config.hidden_size), dtype=runner.dtype)
        self.capture()

    def can_run(self, forward_batch):
        return forward_batch.batch_size <= max(self.capture_bs)

    def capture_one_batch_size(self, size, forward):
        info = EagleDraftInput(torch.ones((size, 1)), self.topk_index[:size], self.hidden[:size])
        batch = ForwardBatch(ForwardMode.DECODE, size, self.req_rows[:size], self.seq_lens[:size],
                             self.slots[: size * self.steps], self.positions[:size], info)
        def run_once():
            slots, hidden = batch.out_cache_loc, info.hidden_states
            out = self.worker.draft_forward(batch)
            batch.out_cache_loc, info.hidden_states = slots, hidden
            batch.positions.sub_(self.steps - 1)
            return out
        graph = self._create_graph()
        return graph, self._capture_graph(graph, None, None, run_once)

    def _replay(self, forward_batch):
        self.graphs[self.bs].replay()

    def replay(self, forward_batch):
        raw, info = forward_batch.batch_size, forward_batch.spec_info
        self.bs = min(size for size in self.capture_bs if size >= raw)
        for one in (self.slots, self.positions, self.req_rows):
            one.zero_()
        self.slots[: raw * self.steps] = forward_batch.out_cache_loc
        self.positions[:raw], self.req_rows[:raw] = forward_batch.positions, forward_batch.req_pool_indices
        self.seq_lens[:raw], self.topk_index[:raw] = forward_batch.seq_lens, info.topk_index
        self.hidden[:raw] = info.hidden_states
        self._replay(forward_batch)
        return tuple(one if one is None else one[:raw] for one in self.output_buffers[self.bs])
""",
    **MORE,
}
Changes = Mapping[str, tuple[str, str]]


def tiny_wheel(folder: Path, version: str, changes: Changes | None = None, without: tuple[str, ...] = ()) -> Path:
    """Write the wheel of a release in which lines of some files are others, and some files are not there."""
    files = {name: text for name, text in FILES.items() if name not in without}
    for name, (old, new) in (changes or {}).items():
        assert files[name].count(old) == 1, (name, old)
        files[name] = files[name].replace(old, new)
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"sglang-{version}.dist-info/METADATA", f"Name: sglang\nVersion: {version}\n")
    return path
