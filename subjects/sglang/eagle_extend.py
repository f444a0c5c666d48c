"""The extends of SGLang's EAGLE workers, after prefill and after verify, in the place of the engine's own.

`R` requests, `W` verify width, `T` rows of all requests, `D` hidden width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from draftproof.engine.drafts.base import Accepted, DraftContext, PromptChunks, metadata_of_rows
from draftproof.engine.drafts.eagle import EagleDraft
from draftproof.engine.models.base import Head
from draftproof.engine.parts import EngineParts
from draftproof.engine.runner import Outputs
from draftproof.engine.stages import Launch
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.making import SubjectNameError
from draftproof.subjects.sglang.bare import NoneAttributes, StubAttributes, make_without_init
from draftproof.subjects.sglang.draft_decode import DRAFT_WORKERS
from draftproof.subjects.sglang.extending import (
    VALUES,
    ExtendRunner,
    Stage,
    WorkerBatch,
    one_unfinished,
    prompt_batch,
    stage_of,
    token_places,
)
from draftproof.subjects.sglang.graphs import graph_runner
from draftproof.subjects.sglang.release import SglangRelease, run_alone
from draftproof.subjects.sglang.worker import Place, WorkerSubject

_GRAPHS: Place = ("speculative.eagle_draft_extend_cuda_graph_runner", "EAGLEDraftExtendCudaGraphRunner")
_ALGORITHMS: Place = ("speculative.spec_info", "SpeculativeAlgorithm")
_BATCH, _EAGLE = "model_executor.forward_batch_info", "speculative.eagle_info"


class WorkerExtends(EagleDraft):
    """A `Draft` that is extended by a release's worker; its steps are the engine's."""

    source: ClassVar[SglangRelease]
    stage: ClassVar[Stage]
    worker: ClassVar[str]

    def __init__(self, model: Head, context: DraftContext) -> None:
        super().__init__(model, context)
        vocab = context.target.vocab if model.target_ids is None else len(model.target_ids)
        self._runner = ExtendRunner(context, vocab, self._forward, model.logits)
        self._runner.spec_algorithm = self.source.find(*_ALGORITHMS).from_string("EAGLE")
        if not self.stage.prefill:
            self.extenders = ()
        # As a server does, before there is anything in a slot: captures write somewhere.
        self._workers = {steps: self._made(steps) for steps in {1, *context.config.candidates} - {0}}

    def _forward(self, ids: Tensor, hidden: Tensor, metadata: Any) -> tuple[Tensor, Tensor]:
        return self.model.forward(ids, hidden, metadata, self.cache)

    def _made(self, steps: int) -> Any:
        """Return a worker for `steps` steps, with its graph runner if the scenario has graphs."""
        self._set(steps)
        args, runner = self.source.server_args(), self._runner
        runner.server_args = args
        shared = {
            "server_args": args,
            "device": "cpu",
            "topk": 1,
            "speculative_num_steps": steps,
            "speculative_num_draft_tokens": steps + 1,
            "speculative_algorithm": runner.spec_algorithm,
            "model_config": runner.model_config,
            "target_worker": StubAttributes(model_runner=runner),
            "hot_token_id": self.model.target_ids,
            "draft_extend_attn_backend": runner.attn_backend,
            "cuda_graph_runner_for_draft_extend": None,
            "eagle_use_aux_hidden_state": False,
            "seed_dsa_topk_from_draft_extend": False,
            "plan_stream": None,
            "plan_stream_ctx": contextlib.nullcontext(),
        }
        names = ("draft_runner",) if self.worker == "v2" else ("draft_model_runner", "model_runner", "_model_runner")
        worker = make_without_init(
            self.source.find(*DRAFT_WORKERS[self.worker]), **shared, **dict.fromkeys(names, runner)
        )
        config = self.context.config
        if self.stage.graphs and config.sizes and config.capture:
            kind = self.source.find(*_GRAPHS)
            worker.cuda_graph_runner_for_draft_extend = graph_runner(kind, config.sizes, _named(worker, names))
        return worker

    def _worker(self, steps: int) -> Any:
        """Return the worker for `steps` steps, at least one."""
        self._set(max(1, steps))
        return self._workers[max(1, steps)]

    def _set(self, steps: int) -> None:
        """Set the server's arguments for `steps` steps."""
        self.source.set_steps(steps, self.context.config.most_rows)

    def prefill(self, chunks: PromptChunks) -> None:
        """Let the worker write the entries of a chunk of each prompt, and propose."""
        if not self.stage.prefill:
            super().prefill(chunks)
            return
        assert chunks.hidden_states is not None
        count = len(chunks.metadata.positions)
        values = {name: torch.zeros(count, dtype=torch.int64) for name in VALUES}
        values["hidden"] = torch.zeros_like(chunks.hidden_states)
        rows, proposed, handed = len(chunks.rows), [0] * len(chunks.rows), {}
        logits: dict[int, Tensor] = {}
        self.context.probes.before_launch("extend_prompt")
        for places in one_unfinished(chunks.rows):
            token, states = self._prefilled(chunks, places)
            where = token_places(chunks.rows, places)
            for name in VALUES:
                values[name][where] = self._runner.given[name].to(values[name].dtype)
            ends = torch.tensor([len(chunks.rows[place].ids) for place in places]).cumsum(0) - 1
            for i, place in enumerate(places):
                proposed[place], handed[place], logits[place] = int(token[i]), states[i], self._runner.logits[ends[i]]
        taps, first = self.context.probes.taps, torch.tensor(proposed)
        for name in VALUES:
            taps.record(f"prompt.{name}", values[name])
        taps.record("prompt.proposal", first)
        taps.record_margin("prompt.margin", torch.stack([logits[place] for place in range(rows)]))
        self.context.probes.on_launch(Launch("extend_prompt", 0, rows, 0))
        req_rows = torch.tensor([row.req_row for row in chunks.rows])
        next_hidden_states = torch.stack([handed[place] for place in range(rows)])
        self._save(req_rows, {"next_draft_token": first, "next_hidden_states": next_hidden_states})

    def _prefilled(self, chunks: PromptChunks, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the worker's proposals [R] after its extend over some rows of a prefill, and what it hands on."""
        assert chunks.hidden_states is not None
        batch = prompt_batch(self.source.find(_BATCH, "ForwardMode").EXTEND, chunks, places)
        batch.capture_hidden_mode = self.source.find(_BATCH, "CaptureHiddenMode").LAST
        hidden = chunks.hidden_states[token_places(chunks.rows, places)]
        next_tokens = torch.tensor([chunks.next_tokens[place] for place in places])
        worker = self._worker(self.context.config.most_width - 1)
        if self.worker == "v2":
            return self._proposed(worker._draft_extend_for_prefill(batch, hidden, next_tokens))
        worker.forward_draft_extend(batch, hidden, next_tokens, batch.seq_lens_cpu)
        return self._proposed(batch.spec_info)

    def _proposed(self, info: Any) -> tuple[Tensor, Tensor]:
        """Return tokens [R] as the target knows them, and hidden states."""
        token: Tensor = info.topk_index.to(torch.int64).flatten()
        if self.model.target_ids is not None:
            token = self.model.target_ids[token]
        return token, info.hidden_states.clone()

    def save_next_round(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """Let the worker extend the round, and report and save what it made of it."""
        if self.stage.prefill:
            super().save_next_round(accepted, outputs)
            return
        rows, width = accepted.target_tokens.shape
        self.context.probes.before_launch("extend")
        worker = self._worker(width - 1)
        wide = worker.speculative_num_draft_tokens
        counts = [wide] * rows if self.worker == "v2" else (accepted.correct_len + 1).tolist()
        call = self._after_verify if self.worker == "v2" else self._after_verify_v1
        token, handed = self._proposed(call(worker, accepted, wide))
        taps, starts = self.context.probes.taps, [sum(counts[:row]) for row in range(rows)]
        for name in VALUES:
            given = self._runner.given[name]
            placed = given.new_zeros((rows, width, *given.shape[1:]))
            for row, start in enumerate(starts):
                taken = min(width, counts[row])
                placed[row, :taken] = given[start : start + taken]
            taps.record(f"extend.{name}", placed.flatten(0, 1))
        ends = torch.tensor(starts) + accepted.correct_len
        taps.record("extend.proposal", token)
        taps.record_margin("extend.margin", self._runner.logits[ends])
        self.context.probes.on_launch(Launch("extend", 0, rows, 0, width))
        self._save(accepted.req_rows, {"next_draft_token": token, "next_hidden_states": handed})

    def _after_verify(self, worker: Any, accepted: Accepted, wide: int) -> Any:
        """Return what the v2 worker proposes, which extends every request by as many rows."""
        assert accepted.hidden_states is not None
        rows, more = len(accepted.requests), wide - accepted.target_tokens.shape[1]
        # Rows behind the accepted ones go to slot 0: pages taken ahead for them are not ours to give.
        where = (accepted.req_rows, accepted.seq_lens, accepted.correct_len)
        result = NoneAttributes(
            logits_output=StubAttributes(
                hidden_states=pad(accepted.hidden_states, (0, 0, 0, more)).reshape(rows * wide, -1)
            ),
            next_token_ids=pad(accepted.target_tokens, (0, more)).reshape(-1),
            accept_lens=accepted.correct_len + 1,
            num_correct_drafts=accepted.correct_len,
            new_seq_lens=accepted.seq_lens + accepted.correct_len + 1,
            next_draft_input=NoneAttributes(),
        )
        batch = WorkerBatch(
            forward_mode=self.source.find(_BATCH, "ForwardMode").DECODE,
            seq_lens=accepted.seq_lens.clone(),
            seq_lens_cpu=accepted.seq_lens.clone(),
            seq_lens_sum=int(accepted.seq_lens.sum()),
            req_pool_indices=accepted.req_rows,
            out_cache_loc=metadata_of_rows(self.context, *where, wide).slot_mapping,
            reqs=[],
            device="cpu",
            model_config=StubAttributes(vocab_size=self.context.target.vocab),
        )
        worker._draft_extend_for_decode(batch, result)
        return result.next_draft_input

    def _after_verify_v1(self, worker: Any, accepted: Accepted, wide: int) -> Any:
        """Return what the v1 worker proposes, which extends every request by the tokens that it gained."""
        assert accepted.hidden_states is not None
        width = accepted.target_tokens.shape[1]
        kept = torch.arange(width) <= accepted.correct_len.unsqueeze(1)
        counts, lengths = accepted.correct_len + 1, accepted.seq_lens + accepted.correct_len + 1
        where = (accepted.req_rows, accepted.seq_lens, accepted.correct_len)
        slots = metadata_of_rows(self.context, *where, width).slot_mapping.view(-1, width)
        kind = self.source.find(_EAGLE, "EagleDraftExtendInput") or self.source.find(_EAGLE, "EagleDraftInput")
        tokens, correct = accepted.target_tokens[kept].to(torch.int64), accepted.correct_len.to(torch.int32)
        info = make_without_init(
            kind,
            hidden_states=accepted.hidden_states[kept],
            verified_id=tokens,
            input_ids=tokens,
            accept_length=correct.clone(),
            accept_length_cpu=correct.tolist(),
            num_accepted_drafts=correct.clone(),
            num_accepted_drafts_cpu=correct.tolist(),
            num_accepted_tokens=correct + 1,
            num_accepted_tokens_cpu=counts.tolist(),
            num_correct_drafts=correct.clone(),
            num_accept_tokens=correct + 1,
            num_accept_tokens_cpu=counts.tolist(),
            seq_lens_for_draft_extend=lengths.clone(),
            seq_lens_for_draft_extend_cpu=lengths.clone(),
            req_pool_indices_for_draft_extend=accepted.req_rows,
            seq_lens=lengths.clone(),
            seq_lens_cpu=lengths.clone(),
            req_pool_indices=accepted.req_rows,
        )
        batch = WorkerBatch(
            forward_mode=self.source.find(_BATCH, "ForwardMode").DECODE,
            seq_lens=lengths.clone(),
            seq_lens_cpu=lengths.clone(),
            seq_lens_sum=int(lengths.sum()),
            req_pool_indices=accepted.req_rows,
            prefix_lens=accepted.seq_lens.tolist(),
            out_cache_loc=slots[kept],
            spec_info=info,
            reqs=[],
            device="cpu",
            return_logprob=False,
        )
        found = worker.forward_draft_extend_after_decode(batch)
        return batch.spec_info if found is None else found


def _named(worker: Any, names: Sequence[str]) -> Any:
    """Return the worker as a graph runner sees it, which tells v1 from v2 by what a worker has."""
    if "model_runner" in names:
        return worker
    return _WithoutRunner(worker)


class _WithoutRunner:
    """A worker that has no `model_runner`."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        if name == "model_runner":
            raise AttributeError(name)
        return getattr(self._worker, name)


class EagleExtend(WorkerSubject):
    """An extend of an EAGLE worker, "v2" or "v1": `stage` is "prefill", "verify" or "verify, graphs"."""

    name = "sglang extend"
    own = frozenset(f"extend.{name}" for name in ("ids", "positions", "slots", "hidden_in", "kv", "proposal"))

    def __init__(self, wheel: str, worker: str = "v2", stage: str = "verify, graphs") -> None:
        if worker not in DRAFT_WORKERS:
            raise SubjectNameError(f"invalid setting worker={worker!r}: expected v2 or v1")
        self._kind, self._stage = worker, stage_of(stage)
        self.needs = (DRAFT_WORKERS[worker],)
        super().__init__(wheel)

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return the worker's extends, of a rank that is alone."""
        run_alone()
        own = {"source": self.source, "worker": self._kind, "stage": self._stage}
        return EngineParts(draft=type("WorkerExtends", (WorkerExtends,), own))
