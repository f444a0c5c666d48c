"""Draft decode of SGLang's EAGLE workers, `draft_forward`, in the place of the engine's own draft steps.

`R` rows of a batch, `K` steps, `D` hidden width.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from draftproof.engine.drafts.base import DraftContext
from draftproof.engine.drafts.eagle import EagleDraft
from draftproof.engine.models.base import Head
from draftproof.engine.parts import EngineParts
from draftproof.engine.stages import DecodeRow, Launch, Proposal
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.making import SubjectNameError
from draftproof.subjects.sglang.bare import StubAttributes, make_without_init
from draftproof.subjects.sglang.graphs import graph_runner, replays
from draftproof.subjects.sglang.release import SglangRelease
from draftproof.subjects.sglang.runner import Backends, DecodeRunner
from draftproof.subjects.sglang.slots import step_slots
from draftproof.subjects.sglang.worker import Place, WorkerSubject

DRAFT_WORKERS: dict[str, Place] = {
    "v1": ("speculative.eagle_worker", "EAGLEWorker"),
    "v2": ("speculative.eagle_worker_v2", "EagleDraftWorker"),
}


class WorkerSteps(EagleDraft):
    """A `Draft` with the steps of a release's worker; the extend is the engine's."""

    source: ClassVar[SglangRelease]
    worker: ClassVar[Place]
    graphs: ClassVar[Place] = ("speculative.eagle_draft_cuda_graph_runner", "EAGLEDraftCudaGraphRunner")

    def __init__(self, model: Head, context: DraftContext) -> None:
        super().__init__(model, context)
        self.proposer = None
        # As a server does, before there is anything in a slot: captures write somewhere.
        self._workers = {steps: self._made(steps) for steps in context.config.candidates if steps}

    def propose(self, batch: tuple[DecodeRow, ...], req_rows: Tensor, steps: int) -> Proposal:
        """Return the worker's draft_tokens [R, K]."""
        if not steps:
            return Proposal(torch.zeros((len(batch), 0), dtype=torch.int64), (0,) * len(batch))
        worker, graphs = self._workers[steps]
        self._set(steps)
        ready = self._batch(batch, steps)
        self.context.probes.before_launch("draft")
        size, replayed = 0, 0
        if graphs is not None and self._can_run(graphs, ready):
            size = self._size(len(batch))
            _, _, draft_tokens, *_ = (graphs.execute if hasattr(type(graphs), "execute") else graphs.replay)(ready)
            replayed = replays(graphs, size)
        else:
            _, _, draft_tokens, *_ = worker.draft_forward(ready)
        self.context.probes.on_launch(Launch("draft", size, len(batch), replayed, steps + 1))
        proposed = draft_tokens.reshape(len(batch), steps).to(torch.int64)
        return Proposal(proposed, tuple(row.num_drafts for row in batch))

    @staticmethod
    def _can_run(graphs: Any, batch: Any) -> bool:
        return bool((graphs.can_run_graph if hasattr(type(graphs), "can_run_graph") else graphs.can_run)(batch))

    def _size(self, rows: int) -> int:
        return min(size for size in self.context.config.sizes if size >= rows)

    def _made(self, steps: int) -> tuple[Any, Any]:
        """Return a worker for `steps` steps, and its graph runner if the scenario has graphs."""
        release, config = self.source, self.context.config
        self._set(steps)
        backend = release.find("model_executor.forward_context", "get_attn_backend")
        target, args = self.context.target, release.server_args()
        handed = self.output_width(self.model, target)
        algorithm = release.find("speculative.spec_info", "SpeculativeAlgorithm").from_string("EAGLE")
        runner = DecodeRunner(
            self,
            self.tapping,
            target.vocab,
            current_backend=backend,
            device="cpu",
            dtype=target.hidden_dtype,
            server_args=args,
            spec_algorithm=algorithm,
            draft_attn_backend=Backends(steps),
            model_config=StubAttributes(
                hidden_size=handed,
                spec_hidden_size=handed,
                vocab_size=target.vocab,
                dtype=target.hidden_dtype,
                hf_config=StubAttributes(architectures=["Probe"]),
            ),
            tp_size=1,
            dp_size=1,
        )
        worker = make_without_init(
            release.find(*self.worker),
            server_args=args,
            device="cpu",
            topk=1,
            speculative_num_steps=steps,
            speculative_num_draft_tokens=steps + 1,
            hot_token_id=self.model.target_ids,
            draft_runner=runner,
            draft_model_runner=runner,
            _model_runner=runner,
            model_runner=runner,
            draft_attn_backend=runner.draft_attn_backend,
        )
        if hasattr(type(worker), "_rebuild_topk1_chain_buffers"):
            worker._rebuild_topk1_chain_buffers()
        if not config.sizes or not config.capture or steps < 2:
            return worker, None
        kind = release.find(*self.graphs)
        with runner.quiet():
            return worker, graph_runner(kind, config.sizes, worker)

    def _set(self, steps: int) -> None:
        """Set the server's arguments for `steps` steps."""
        self.source.set_steps(steps, self.context.config.most_rows)

    def _batch(self, batch: tuple[DecodeRow, ...], steps: int) -> Any:
        release, device = self.source, self.context.device
        req_rows, seq_lens = (
            torch.tensor([getattr(row, name) for row in batch], dtype=torch.int64, device=device)
            for name in ("req_row", "seq_len")
        )
        arena, target_ids = self.context.arena, self.model.target_ids
        proposed = arena["next_draft_token"][req_rows]
        if target_ids is not None:
            proposed = (target_ids == proposed.unsqueeze(1)).int().argmax(1)
        info = release.find("speculative.eagle_info", "EagleDraftInput")
        spec_info = make_without_init(
            info,
            topk_p=torch.ones((len(batch), 1)),
            topk_index=proposed.unsqueeze(1),
            hidden_states=arena["next_hidden_states"][req_rows],
        )
        return make_without_init(
            release.find("model_executor.forward_batch_info", "ForwardBatch"),
            forward_mode=release.find("model_executor.forward_batch_info", "ForwardMode").DECODE,
            batch_size=len(batch),
            req_pool_indices=req_rows,
            seq_lens=seq_lens,
            seq_lens_cpu=seq_lens.clone(),
            seq_lens_sum=int(seq_lens.sum()),
            out_cache_loc=step_slots(self.context, batch, steps).view(-1),
            positions=seq_lens.clone(),
            spec_info=spec_info,
        )


class DraftDecode(WorkerSubject):
    """`draft_forward` of an EAGLE worker, "v2" or "v1", eagerly and through its graph runner."""

    name = "sglang draft"
    own = frozenset(f"draft.step.{name}" for name in ("ids", "positions", "slots", "hidden_in", "proposal"))
    own |= {"propose.tokens"}

    def __init__(self, wheel: str, worker: str = "v2") -> None:
        if worker not in DRAFT_WORKERS:
            raise SubjectNameError(f"invalid setting worker={worker!r}: expected v2 or v1")
        self.needs = (DRAFT_WORKERS[worker],)
        super().__init__(wheel)
        self._draft = type("WorkerSteps", (WorkerSteps,), {"source": self.source, "worker": DRAFT_WORKERS[worker]})

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return the worker's draft steps."""
        return EngineParts(draft=self._draft)
