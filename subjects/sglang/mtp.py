"""The extends of SGLang's multi-layer worker, after prefill and after verify, beside the engine's own.

`R` requests, `W` verify width, `L` layers, `T` rows a request of the worker (L + 1, and in some graphs more in front).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from draftproof.engine.drafts.base import Accepted, DraftContext, PromptChunks, Tapping, metadata_of_rows
from draftproof.engine.drafts.mtp import MtpDraft
from draftproof.engine.models.base import Chain
from draftproof.engine.parts import EngineParts
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Outputs
from draftproof.engine.runtime import padded_buffers
from draftproof.engine.stages import Launch, PrefillRow
from draftproof.engine.subject.taps import RecordingTaps, Tapped
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.sglang.bare import NoneAttributes, StubAttributes, make_without_init
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
from draftproof.subjects.sglang.graphs import graph_runners
from draftproof.subjects.sglang.release import SglangRelease, replace_everywhere, run_alone
from draftproof.subjects.sglang.worker import Place, WorkerSubject, on_probes

WORKER: Place = ("speculative.multi_layer_eagle_worker_v2", "MultiLayerEagleDraftWorker")
_ALGORITHMS: Place = ("speculative.spec_info", "SpeculativeAlgorithm")
_GRAPHS = "speculative.multi_layer_eagle_draft_extend_cuda_graph_runner"
ALL_STEPS, ONE_STEP = "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner", "MultiLayerEagleDraftExtendCudaGraphRunner"


class WorkerExtend(MtpDraft):
    """A `Draft` with the worker's entries; entries that it does not compute again are the engine's."""

    source: ClassVar[SglangRelease]
    stage: ClassVar[Stage]

    def __init__(self, model: Chain, context: DraftContext) -> None:
        super().__init__(model, context)
        layers, vocab = self._layers, context.target.vocab
        self.source.set_steps(layers, context.config.most_rows)
        self._runners = []
        for layer in range(layers):
            run = partial(_run_layer, self, layer)
            runner = ExtendRunner(context, vocab, run, partial(model.layer_logits, layer), model.target_ids)
            runner.server_args = self.source.server_args()
            runner.spec_algorithm = self.source.find(*_ALGORITHMS).from_string("EAGLE")
            self._runners.append(runner)
        self._worker = self._made(context)

    def _made(self, context: DraftContext) -> Any:
        layers, target = self._layers, context.target
        most = context.page_table.shape[0]
        worker = make_without_init(
            self.source.find(*WORKER),
            server_args=self.source.server_args(),
            device="cpu",
            gpu_id=0,
            topk=1,
            speculative_num_steps=layers,
            speculative_num_draft_tokens=layers + 1,
            speculative_algorithm=self._runners[0].spec_algorithm,
            target_worker=StubAttributes(model_runner=self._runners[0]),
            model_config=self._runners[0].model_config,
            draft_runner_list=self._runners,
            draft_runner=self._runners[0],
            draft_extend_attn_backend_list=[runner.attn_backend for runner in self._runners],
            chain_mtp_hidden_states=self.model.chain,
            cuda_graph_runner_for_draft_extend=None,
            draft_extend_num_front_tokens=0,
            use_rejection_sampling=False,
            plan_stream=None,
            plan_stream_ctx=contextlib.nullcontext(),
            req_to_token_pool=self._runners[0].req_to_token_pool,
            req_to_hidden_states_pool=torch.zeros((most, layers - 1, target.width), dtype=target.hidden_dtype),
        )
        if self.stage.graphs and context.config.sizes and context.config.capture:
            # A replay of a real graph does not ask; the closure asks again.
            replace_everywhere("get_req_to_token_pool", lambda: worker.req_to_token_pool)
            kind, one = self.source.find(_GRAPHS, ALL_STEPS), self.source.find(_GRAPHS, ONE_STEP)
            worker.cuda_graph_runner_for_draft_extend = graph_runners(kind, one, context.config.sizes, worker)
        return worker

    def prefill(self, chunks: PromptChunks) -> None:
        """Let the worker run over a chunk of each prompt, for its memory at least."""
        if self.stage.prefill:
            self._prefill(chunks)
            return
        for places in one_unfinished(chunks.rows):
            self._prefilled(chunks, places)
        super().prefill(chunks)

    def _prefill(self, chunks: PromptChunks) -> None:
        """Report and save what the worker makes of it; entries before a chunk are computed again by the engine."""
        given, context = RecordingTaps(), self.context
        self.context, self.tapping = replace(context, probes=Probes()), Tapping(Probes(given))
        super().prefill(chunks)
        self.context, self.tapping = context, Tapping(context.probes)
        context.probes.before_launch("extend_prompt")
        own, proposals = given.take(), torch.zeros((len(chunks.rows), self._layers), dtype=torch.int64)
        margins: list[dict[int, Tensor]] = [{} for _ in self._runners]
        for places in one_unfinished(chunks.rows):
            proposals[places] = self._prefilled(chunks, places)
            ends = torch.tensor([len(chunks.rows[place].ids) for place in places]).cumsum(0) - 1
            for layer, runner in enumerate(self._runners):
                self._put_chunks(own, layer, runner.given, chunks.rows, places)
                margins[layer] |= dict(zip(places, runner.logits[ends], strict=True))
        taps = context.probes.taps
        for layer in range(self._layers):
            for name in VALUES:
                taps.record(f"prompt.{name}", own[f"prompt.{name}", layer], layer)
            taps.record("prompt.proposal", proposals[:, layer].contiguous(), layer)
            logits = torch.stack([margins[layer][place] for place in range(len(chunks.rows))])
            taps.record_margin("prompt.margin", logits, layer)
        context.probes.on_launch(Launch("extend_prompt", 0, len(chunks.rows), 0))
        req_rows = torch.tensor([row.req_row for row in chunks.rows])
        context.arena["next_draft_tokens"][req_rows] = proposals

    def _prefilled(self, chunks: PromptChunks, places: Sequence[int]) -> Tensor:
        """Return the worker's proposals [R, L] after its extend over some rows of a prefill."""
        assert chunks.hidden_states is not None
        mode = self.source.find("model_executor.forward_batch_info", "ForwardMode").EXTEND
        batch = prompt_batch(mode, chunks, places)
        modes = self.source.find("model_executor.forward_batch_info", "CaptureHiddenMode")
        batch.capture_hidden_mode = modes.FULL if self.model.chain else modes.LAST
        next_tokens = torch.tensor([chunks.next_tokens[place] for place in places])
        self._read_table()
        found = self._worker._draft_extend_for_prefill(
            batch, chunks.hidden_states[token_places(chunks.rows, places)], next_tokens
        )
        proposed: Tensor = found.topk_index
        return proposed.to(torch.int64)

    def _put_chunks(
        self, own: Tapped, layer: int, given: Mapping[str, Tensor], rows: Sequence[PrefillRow], places: Sequence[int]
    ) -> None:
        """Put what the worker was given in the place of the engine's values of the same entries."""
        at, starts = 0, _starts(rows, self.lookback)
        for place in places:
            row = rows[place]
            first, count = starts[place] + row.start - max(0, row.start - self.lookback), len(row.ids)
            for name in VALUES:
                own[f"prompt.{name}", layer][first : first + count] = given[name][at : at + count]
            at += count

    def save_next_round(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """Let the worker extend the round once more, and report and save what it made of it."""
        if self.stage.prefill:
            super().save_next_round(accepted, outputs)
            return
        own, last = self._own(accepted)
        super().save_next_round(accepted, outputs)
        proposals = self._extended(accepted)
        taps, width = self.context.probes.taps, accepted.target_tokens.shape[1]
        for layer, runner in enumerate(self._runners):
            self.context.probes.before_launch("extend")
            for name in VALUES:
                taps.record(f"extend.{name}", self._merged(own, name, layer, runner.given, accepted, last), layer)
            taken = self._width(layer, len(last))
            front = taken - self._layers - 1
            ends = torch.arange(len(last)) * taken + front + accepted.correct_len
            taps.record("extend.proposal", proposals[:, layer].contiguous(), layer)
            taps.record_margin("extend.margin", runner.logits[ends], layer)
            self.context.probes.on_launch(Launch("extend", 0, len(last), 0, width, layer))
        self.context.arena["next_draft_tokens"][accepted.req_rows] = proposals

    def _read_table(self) -> None:
        for runner in self._runners:
            runner.table.fill()

    def _width(self, layer: int, rows: int) -> int:
        """Return T: some releases' graphs begin a position earlier with every layer; batches too large run eagerly."""
        graphs, eager = self._worker.cuda_graph_runner_for_draft_extend, self._layers + 1
        if graphs is None or len(self._runners[layer].given["ids"]) == rows * eager:
            return eager
        return int(vars(graphs.runners[layer]).get("num_tokens_per_bs", eager))

    def _own(self, accepted: Accepted) -> tuple[Tapped, Tensor]:
        """Return what the engine's own layers are given, and the column of each request's last entry."""
        taps = RecordingTaps()
        heard, self.tapping = self.tapping, Tapping(Probes(taps))
        rows, width = accepted.target_tokens.shape
        buffers = padded_buffers(self.extend_inputs(width), rows, self.context.device)
        buffers.fill(self.extend_values(accepted), rows, rows)
        views = buffers.view(rows)
        for layer in range(self._layers):
            self.extend(layer, views)
        self.tapping = heard
        return taps.take(), views["last"]

    def _merged(
        self, own: Tapped, name: str, layer: int, given: Mapping[str, Tensor], accepted: Accepted, last: Tensor
    ) -> Tensor:
        """Return the engine's values with the worker's in place of those in its window."""
        rows, merged, width = len(last), own[f"extend.{name}", layer].clone(), self._width(layer, len(last))
        front = width - self._layers - 1
        flat = merged.view(rows, merged.shape[0] // rows, -1)
        worker = given[name][: rows * width].view(rows, width, -1)
        for row, (end, correct) in enumerate(zip(last.tolist(), accepted.correct_len.tolist(), strict=True)):
            before = min(front, end - correct)
            flat[row, end - correct - before : end + 1] = worker[row, front - before : front + correct + 1].to(
                flat.dtype
            )
        return merged

    def _extended(self, accepted: Accepted) -> Tensor:
        """Return the worker's proposals [R, L] after it has extended every request by T rows."""
        assert accepted.hidden_states is not None
        find, rows, width = self.source.find, len(accepted.requests), self._layers + 1
        more = width - accepted.target_tokens.shape[1]
        hidden = pad(accepted.hidden_states, (0, 0, 0, more)).reshape(rows * width, -1)
        result = NoneAttributes(
            logits_output=StubAttributes(hidden_states=hidden),
            next_token_ids=pad(accepted.target_tokens, (0, more)).reshape(-1),
            accept_lens=accepted.correct_len + 1,
            num_correct_drafts=accepted.correct_len,
            next_draft_input=NoneAttributes(),
        )
        # Rows behind the accepted ones go to slot 0: pages taken ahead for them are not ours to give.
        where = (accepted.req_rows, accepted.seq_lens, accepted.correct_len)
        self._read_table()
        batch = WorkerBatch(
            forward_mode=find("model_executor.forward_batch_info", "ForwardMode").DECODE,
            seq_lens=accepted.seq_lens.clone(),
            seq_lens_cpu=accepted.seq_lens.clone(),
            seq_lens_sum=int(accepted.seq_lens.sum()),
            req_pool_indices=accepted.req_rows,
            out_cache_loc=metadata_of_rows(self.context, *where, width).slot_mapping,
            reqs=[],
            device="cpu",
            model_config=StubAttributes(vocab_size=self.context.target.vocab),
        )
        self._worker._draft_extend_for_decode(batch, result)
        proposed: Tensor = result.next_draft_input.topk_index
        return proposed.to(torch.int64)


def _run_layer(draft: MtpDraft, layer: int, ids: Tensor, hidden: Tensor, metadata: Any) -> tuple[Tensor, Tensor]:
    return draft.model.forward(layer, ids, hidden, metadata, draft.cache)


def _starts(rows: Sequence[PrefillRow], lookback: int) -> list[int]:
    """Return where each row begins in a launch that computes entries before its chunk again."""
    lengths = [row.end - max(0, row.start - lookback) for row in rows]
    return [sum(lengths[:place]) for place in range(len(rows))]


class ChainExtend(WorkerSubject):
    """An extend of the multi-layer worker: `stage` is "prefill", "verify" or "verify, graphs"."""

    name = "sglang mtp"
    limits = on_probes("mtp")
    own = frozenset(f"extend.{name}" for name in ("ids", "positions", "slots", "hidden_in", "kv", "proposal"))
    needs = (WORKER,)

    def __init__(self, wheel: str, stage: str = "verify, graphs") -> None:
        self._stage = stage_of(stage)
        super().__init__(wheel)

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return the worker's extends, of a rank that is alone."""
        run_alone()
        return EngineParts(draft=type("WorkerExtend", (WorkerExtend,), {"source": self.source, "stage": self._stage}))
