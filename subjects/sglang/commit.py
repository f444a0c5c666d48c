"""Which recurrent states a worker commits: its step indices, and how the backend takes them.

`R` rows of a round, `W` verify width.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.parts import EngineParts
from draftproof.engine.states.snapshot import Snapshot
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.making import SubjectNameError
from draftproof.subjects.sglang.bare import StubAttributes, make_without_init
from draftproof.subjects.sglang.release import SglangRelease, replace_everywhere
from draftproof.subjects.sglang.worker import Place, WorkerSubject, on_probes

BACKEND: Place = ("layers.attention.hybrid_linear_attn_backend", "HybridLinearAttnBackend")
V2: tuple[Place, ...] = (
    ("speculative.spec_utils", "commit_mamba_states_after_verify"),
    ("speculative.eagle_worker_v2", "EAGLEWorkerV2"),
)
_WORKERS: dict[str, tuple[Place, ...]] = {
    "v1": (("speculative.eagle_worker", "EAGLEWorker"),),
    "v2": V2,
    "multi-layer v1": (("speculative.multi_layer_eagle_worker", "MultiLayerEagleWorker"),),
}
"""Where workers say it, the newer place first."""


class WorkerCommit(Snapshot):
    """Snapshots that a worker commits through the backend of the release."""

    source: ClassVar[SglangRelease]
    place: ClassVar[Place]

    def commit(self, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
        """Let the worker find the steps [R] from what was accepted, and hand them to the backend."""
        rows, width = len(state_slots), self.intermediate_ssm.shape[2]
        steps = last_correct_step_indices.tolist()
        flat = torch.arange(rows * width).view(rows, width)
        accepted = torch.tensor([at for row, step in zip(flat.tolist(), steps, strict=True) for at in row[: step + 1]])
        kept = torch.arange(width) <= last_correct_step_indices.unsqueeze(1)
        mode = self.source.find("model_executor.forward_batch_info", "ForwardMode").TARGET_VERIFY
        batch = StubAttributes(
            forward_mode=mode,
            seq_lens=torch.zeros(rows, dtype=torch.int64),
            mamba_track_indices=None,
            get_model_worker_batch=lambda **_: StubAttributes(capture_hidden_mode=None),
        )
        self._call(batch, steps, accepted, torch.where(kept, flat, -1), self._target(state_slots, rows * width))

    def _call(self, batch: Any, steps: list[int], accepted: Tensor, index: Tensor, target: StubAttributes) -> None:
        module, name = self.place
        kind, width = self.source.find(module, name), index.shape[1]
        accept_lens = torch.tensor(steps, dtype=torch.int32) + 1
        if not isinstance(kind, type):
            kind(target, batch, accept_lens, index, width)
            return
        counts = ("accept_length_per_req_cpu", "num_accepted_drafts_per_req_cpu", "num_correct_drafts_per_req_cpu")
        result = StubAttributes(accepted_indices=accepted, accept_indices=accepted, **dict.fromkeys(counts, steps))
        info = StubAttributes(topk=1, draft_token_num=width, capture_hidden_mode=None, verify=lambda *_: result)
        batch.spec_info = info
        worker = make_without_init(
            kind, _target_worker=target, target_worker=target, speculative_num_draft_tokens=width
        )
        logits = target.forward_batch_generation().logits_output
        if name == "EAGLEWorkerV2":
            given = {"batch": batch, "verify_input": info, "accept_index": index}
            given |= {"accept_lens": accept_lens, "accept_length": accept_lens}
            takes = inspect.signature(worker._mamba_verify_update).parameters
            worker._mamba_verify_update(**{name: given.get(name, len(steps)) for name in takes})
        elif name == "EAGLEWorker":
            worker._mamba_verify_update(batch, result, logits, info, batch.seq_lens)
        else:
            worker.verify(*(batch, info)[: len(inspect.signature(worker.verify).parameters)])

    def _target(self, state_slots: Tensor, tokens: int) -> StubAttributes:
        """Return a target worker with the engine's pools."""
        caches = StubAttributes(
            conv=[self.conv],
            temporal=self.ssm,
            intermediate_ssm=self.intermediate_ssm,
            intermediate_conv_window=[self.intermediate_conv],
        )
        pool = StubAttributes(get_speculative_mamba2_params_all_layers=lambda: caches, mamba_pool=None)
        metadata = StubAttributes(mamba_cache_indices=state_slots)
        linear = StubAttributes(forward_metadata=metadata, req_to_token_pool=pool, accept_lens_pool=None)
        backend = make_without_init(self.source.find(*BACKEND), linear_attn_backend=linear)
        backend._update_ple_state_after_mtp_verify = lambda *_, **__: None
        runner = StubAttributes(
            attn_backend=backend, mambaish_config=True, hybrid_gdn_config=True, req_to_token_pool=pool
        )
        logits = StubAttributes(next_token_logits=torch.zeros((tokens, 1)), hidden_states=torch.zeros((tokens, 1)))
        done = StubAttributes(logits_output=logits, can_run_cuda_graph=False)
        return StubAttributes(model_runner=runner, forward_batch_generation=lambda *_, **__: done)


def _scatter(dst: Tensor, src: Tensor, slots: Tensor, steps: Tensor, rows: Tensor | None = None) -> None:
    """Stand for the scatter kernel, which takes tensors of a GPU only (`draftproof lab kernels check` has it)."""
    assert rows is None
    kernels.state_scatter(dst, src, slots.to(torch.int64), steps.to(torch.int64))


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Define a name as a builtin: some releases annotate with a class that they import for type checkers only."""
    setattr(builtins, name, object)
    try:
        yield
    finally:
        delattr(builtins, name)


class StateCommit(WorkerSubject):
    """Which states are committed; `worker` is "v2", "v1" or "multi-layer v1"."""

    name = "sglang commit"
    limits = on_probes()
    own = frozenset({"commit.state", "commit.step_index", "commit.final"})

    def __init__(self, wheel: str, worker: str = "v2") -> None:
        if worker not in _WORKERS:
            raise SubjectNameError(f"invalid setting worker={worker!r}: expected {', '.join(_WORKERS)}")
        source = SglangRelease.open(wheel)
        with _named("ModelRunner"):
            place = next((one for one in _WORKERS[worker] if source.find(*one) is not None), _WORKERS[worker][-1])
        self.needs = (place, BACKEND)
        super().__init__(wheel)
        if place[1] == "EAGLEWorkerV2" and not hasattr(self._found[place], "_mamba_verify_update"):
            self._found[place] = None
        self._commit = type("WorkerCommit", (WorkerCommit,), {"source": source, "place": place})

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return the worker's commit."""
        replace_everywhere("fused_mamba_state_scatter_with_mask", _scatter)
        replace_everywhere("fused_conv_window_scatter_with_mask", _scatter)
        replace_everywhere("mambaish_config", lambda *_: True)
        return EngineParts(snapshot=self._commit)
