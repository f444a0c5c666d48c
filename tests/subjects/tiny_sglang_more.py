"""More of the hand-made release: chained layers, graph runners of extends, adaptive steps, acceptance of blocks."""

MORE = {
    "sglang/srt/speculative/dflash_utils.py": """
import torch

def compute_dflash_correct_drafts_and_bonus(*, candidates, target_predict):
    correct_len = (candidates[:, 1:] == target_predict[:, :-1]).to(torch.int32).cumprod(dim=1).sum(dim=1)
    return correct_len, target_predict[torch.arange(len(candidates)), correct_len].to(torch.int64)
""",
    "sglang/srt/speculative/adaptive_spec_params.py": """
class AdaptiveSpeculativeParams:
    def __init__(self, initial_steps, config=None):
        self.config, self.candidate_steps = config, sorted(config["candidate_steps"])
        self.current_steps, self.ema_accept_len, self._batch_count = initial_steps, float(initial_steps - 1), 0

    def update(self, num_correct_drafts_per_req):
        if not num_correct_drafts_per_req:
            return
        config, steps = self.config, self.candidate_steps
        mean, alpha = sum(num_correct_drafts_per_req) / len(num_correct_drafts_per_req), config["ema_alpha"]
        self.ema_accept_len = (1 - alpha) * self.ema_accept_len + alpha * mean
        self._batch_count += 1
        past = self._batch_count - config["warmup_batches"]
        if past <= 0 or past % config["update_interval"]:
            return
        i = steps.index(self.current_steps)
        while i > 0 and self.ema_accept_len <= steps[i - 1] - 0.5 + config["down_hysteresis"]:
            i -= 1
        while i < len(steps) - 1 and self.ema_accept_len > steps[i] - 0.5 + config["up_hysteresis"]:
            i += 1
        self.current_steps = steps[i]
""",
    "sglang/srt/server_args.py": """
class ServerArgs:
    @property
    def max_speculative_num_draft_tokens(self):
        import json
        from pathlib import Path
        return max(json.loads(Path(self.speculative_adaptive_config).read_text())["candidate_steps"]) + 1
""",
    "sglang/srt/model_executor/model_runner_kv_cache_mixin.py": """
from sglang.srt.server_args import ServerArgs
from not_installed_pools import HybridReqToTokenPool

class ModelRunnerKVCacheMixin:
    def _init_pools(self):
        self.req_to_token_pool = HybridReqToTokenPool(
            speculative_num_draft_tokens=self.server_args.max_speculative_num_draft_tokens
        )
""",
    "sglang/srt/speculative/eagle_draft_extend_cuda_graph_runner.py": """
import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.eagle_info import EagleDraftInput

class EAGLEDraftExtendCudaGraphRunner:
    def __init__(self, worker):
        assert not hasattr(worker, "model_runner")
        sizes, _ = get_batch_sizes_to_capture(worker.draft_runner)
        self.allocate(worker.draft_runner, worker.speculative_num_draft_tokens, sizes)

    def allocate(self, runner, width, sizes):
        self.runner, self.width, self.capture_bs = runner, width, sizes
        most, count = max(self.capture_bs), max(self.capture_bs) * self.width
        ints = lambda size: torch.ones(size, dtype=torch.int64)
        self.ids, self.positions, self.slots = ints(count), ints(count), ints(count)
        self.rows, self.seq_lens = ints(most), ints(most)
        self.hidden = torch.zeros((count, self.runner.model_config.hidden_size), dtype=self.runner.dtype)
        self.capture()

    def can_run(self, forward_batch):
        return forward_batch.batch_size <= max(self.capture_bs)

    def capture_one_batch_size(self, size, forward):
        count = size * self.width
        batch = ForwardBatch(ForwardMode.DRAFT_EXTEND_V2, size, self.rows[:size], self.seq_lens[:size],
                             self.slots[:count], self.positions[:count], EagleDraftInput(hidden_states=self.hidden),
                             self.ids[:count], [self.width] * size, CaptureHiddenMode.FULL)
        batch.spec_info.hidden_states = self.hidden[:count]
        graph = self._create_graph()
        run_once = lambda: self.runner.model.forward(batch.input_ids, batch.positions, batch)
        return graph, self._capture_graph(graph, None, None, run_once)

    def _replay(self, forward_batch):
        self.graphs[self.bs].replay()

    def replay(self, forward_batch):
        raw, count = forward_batch.batch_size, len(forward_batch.input_ids)
        self.bs = min(size for size in self.capture_bs if size >= raw)
        for buffer in (self.ids, self.positions, self.slots, self.rows):
            buffer.zero_()
        self.ids[:count], self.positions[:count] = forward_batch.input_ids, forward_batch.positions
        self.slots[:count], self.rows[:raw] = forward_batch.out_cache_loc, forward_batch.req_pool_indices
        self.hidden[:count] = forward_batch.spec_info.hidden_states
        self._replay(forward_batch)
        return self.output_buffers[self.bs]
""",
    "sglang/srt/speculative/multi_layer_eagle_worker_v2.py": """
import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.eagle_info import EagleDraftInput

def rotate(ids, starts, lengths, token, select=None):
    for i, (start, length) in enumerate(zip(starts, lengths)):
        ids[start : start + length - 1] = ids[start + 1 : start + length].clone()
        ids[start + length - 1 if select is None else select[i]] = token[i]

class MultiLayerEagleDraftWorker:
    def _draft_extend_for_prefill(self, batch, target_hidden_states, next_token_ids):
        lengths = batch.extend_seq_lens
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        tails = next_token_ids.clone()
        for i, req in enumerate(batch.reqs):
            if batch.chunked_req is not None and req is batch.chunked_req:
                tails[i] = batch.chunked_req_next_prompt_token
        rotate(batch.input_ids, starts, lengths, tails)
        batch.spec_info = EagleDraftInput(hidden_states=target_hidden_states)
        forward_batch = ForwardBatch.init_new(batch, self.draft_runner_list[0])
        return EagleDraftInput(topk_index=torch.cat(self._layers(forward_batch, starts, lengths), dim=1))

    def _draft_extend_for_decode(self, batch, batch_result):
        width, rows = self.speculative_num_draft_tokens, len(batch.seq_lens)
        select_index = torch.arange(rows) * width + batch_result.accept_lens - 1
        batch.spec_info = EagleDraftInput(hidden_states=batch_result.logits_output.hidden_states)
        batch.input_ids, batch.extend_seq_lens = batch_result.next_token_ids, [width] * rows
        batch.extend_prefix_lens = batch.seq_lens_cpu.tolist()
        batch.forward_mode, batch.capture_hidden_mode = ForwardMode.DRAFT_EXTEND_V2, CaptureHiddenMode.FULL
        forward_batch = ForwardBatch.init_new(batch, self.draft_runner_list[0])
        starts = [i * width for i in range(rows)]
        found = self._layers(forward_batch, starts, batch.extend_seq_lens, select_index)
        batch_result.next_draft_input.topk_index = torch.cat(found, dim=1)

    def _layers(self, forward_batch, starts, lengths, select_index=None):
        found = []
        graphs = self.cuda_graph_runner_for_draft_extend if select_index is not None else None
        for step, runner in enumerate(self.draft_runner_list):
            if graphs and graphs.can_run(forward_batch):
                out = graphs.runners[step].replay(forward_batch)
            else:
                out = runner.forward(forward_batch).logits_output
            logits = out.next_token_logits if select_index is None else out.next_token_logits[select_index]
            found.append(torch.argmax(logits, dim=-1, keepdim=True))
            if self.chain_mtp_hidden_states and step < self.speculative_num_steps - 1:
                forward_batch.spec_info.hidden_states = out.hidden_states[: len(forward_batch.input_ids)]
            rotate(forward_batch.input_ids, starts, lengths, found[-1], select_index)
        return found
""",
    "sglang/srt/speculative/multi_layer_eagle_draft_extend_cuda_graph_runner.py": """
from sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner import EAGLEDraftExtendCudaGraphRunner

class MultiLayerEagleDraftExtendCudaGraphRunner(EAGLEDraftExtendCudaGraphRunner):
    def __init__(self, worker, step):
        runner = worker.draft_runner_list[step]
        self.allocate(runner, worker.speculative_num_draft_tokens, get_batch_sizes_to_capture(runner)[0])

class MultiLayerEagleMultiStepDraftExtendCudaGraphRunner:
    def __init__(self, worker):
        steps = range(worker.speculative_num_steps)
        self.runners = [MultiLayerEagleDraftExtendCudaGraphRunner(worker, step) for step in steps]

    def can_run(self, forward_batch):
        return self.runners[0].can_run(forward_batch)
""",
}
