"""The extend after verify of SGLang's multi-layer worker, eagerly, beside the engine's own.

`R` requests, `W` verify width, `L` layers, `T` rows a request of the worker (L + 1), `D` hidden width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from draftproof import kernels
from draftproof.engine.drafts.base import Accepted, DraftContext, Tapping, metadata_of_rows
from draftproof.engine.drafts.mtp import MtpDraft
from draftproof.engine.models.base import Chain
from draftproof.engine.parts import EngineParts
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Outputs
from draftproof.engine.stages import Launch
from draftproof.engine.subject.taps import RecordingTaps, Tapped
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.sglang.bare import Loose, Unset, bare
from draftproof.subjects.sglang.release import SglangRelease, replace_everywhere
from draftproof.subjects.sglang.runner import Addressed, decided
from draftproof.subjects.sglang.worker import Place, WorkerSubject

WORKER: Place = ("speculative.multi_layer_eagle_worker_v2", "MultiLayerEagleDraftWorker")
VALUES = ("ids", "positions", "slots", "hidden", "rows")


class LayerRunner(Loose):
    """The model runner of one layer: runs the probe's, and keeps what it was given."""

    def __init__(self, draft: MtpDraft, layer: int, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._draft, self._layer = draft, layer
        self._addressed = Addressed(draft.cache, draft.context.target.vocab)
        self.given: dict[str, Tensor] = {}
        self.logits: Tensor

    def forward(self, batch: Any, *args: Any, **options: Any) -> Loose:
        """Run the rows of every request; each sees what is before it, and itself."""
        model, hidden, width = self._draft.model, batch.spec_info.hidden_states, len(batch.input_ids)
        req_rows = batch.req_pool_indices.repeat_interleave(width // len(batch.req_pool_indices))
        values = (batch.input_ids, batch.positions, batch.out_cache_loc, hidden, req_rows)
        self.given = {name: value.clone() for name, value in zip(VALUES, values, strict=True)}
        metadata = self._addressed.metadata(req_rows, batch.positions, batch.out_cache_loc, batch.positions)
        ids = self._addressed.ids(batch.input_ids)
        states, handed = model.forward(self._layer, ids, hidden, metadata, self._draft.cache)
        self.logits = model.layer_logits(self._layer, states)
        token = torch.empty(len(ids), dtype=torch.int64)
        kernels.greedy_choice(token, self.logits)
        if model.target_ids is not None:
            token = model.target_ids[token]  # the worker knows no vocabulary but the target's
        chosen = decided(torch.zeros((len(ids), self._draft.context.target.vocab)), token)
        return Loose(logits_output=Loose(next_token_logits=chosen, hidden_states=handed))


class WorkerExtend(MtpDraft):
    """A `Draft` whose entries of a round are the worker's; those before it, computed again, are the engine's."""

    source: ClassVar[SglangRelease]

    def __init__(self, model: Chain, context: DraftContext) -> None:
        super().__init__(model, context)
        layers = self._layers
        self.source.settings.update(speculative_num_steps=layers, speculative_num_draft_tokens=layers + 1)
        args = self.source.server_args()
        config = Loose(vocab_size=context.target.vocab, hf_config=Loose(architectures=["Probe"]))
        shared = {"device": "cpu", "server_args": args, "model_config": config, "attn_backend": Loose()}
        self._runners = [LayerRunner(self, layer, **shared) for layer in range(layers)]
        self._worker = bare(
            self.source.find(*WORKER),
            server_args=args,
            device="cpu",
            topk=1,
            speculative_num_steps=layers,
            speculative_num_draft_tokens=layers + 1,
            draft_runner_list=self._runners,
            draft_runner=self._runners[0],
            chain_mtp_hidden_states=model.chain,
            cuda_graph_runner_for_draft_extend=None,
            draft_extend_num_front_tokens=0,
            use_rejection_sampling=False,
            plan_stream=None,
            plan_stream_ctx=contextlib.nullcontext(),
        )

    def save_next_round(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """Let the worker extend the round once more, and report and save what it made of it."""
        own, last = self._own(accepted)
        super().save_next_round(accepted, outputs)
        proposals = self._extended(accepted)
        taps, width = self.context.probes.taps, accepted.target_tokens.shape[1]
        for layer, runner in enumerate(self._runners):
            self.context.probes.before_launch("extend")
            for name in VALUES:
                taps.record(f"extend.{name}", self._merged(own, name, layer, runner.given, accepted, last), layer)
            ends = torch.arange(len(last)) * (self._layers + 1) + accepted.correct_len
            taps.record("extend.proposal", proposals[:, layer].contiguous(), layer)
            taps.record_margin("extend.margin", runner.logits[ends], layer)
            self.context.probes.on_launch(Launch("extend", 0, len(last), 0, width, layer))
        self.context.arena["next_draft_tokens"][accepted.req_rows] = proposals

    def _own(self, accepted: Accepted) -> tuple[Tapped, Tensor]:
        """Return what the engine's own layers are given, and the column of each request's last entry."""
        taps = RecordingTaps()
        heard, self.tapping = self.tapping, Tapping(Probes(taps))
        views = {name: value.clone() for name, value in self.extend_values(accepted).items()}
        for layer in range(self._layers):
            self.extend(layer, views)
        self.tapping = heard
        return taps.take(), views["last"]

    def _merged(
        self, own: Tapped, name: str, layer: int, given: Mapping[str, Tensor], accepted: Accepted, last: Tensor
    ) -> Tensor:
        """Return the engine's values with the worker's in the place of each request's round."""
        rows, merged = len(last), own[f"extend.{name}", layer].clone()
        flat = merged.view(rows, merged.shape[0] // rows, -1)
        worker = given[name].view(rows, self._layers + 1, -1)
        for row, (end, correct) in enumerate(zip(last.tolist(), accepted.correct_len.tolist(), strict=True)):
            flat[row, end - correct : end + 1] = worker[row, : correct + 1].to(flat.dtype)
        return merged

    def _extended(self, accepted: Accepted) -> Tensor:
        """Return the worker's proposals [R, L] after it has extended every request by T rows."""
        assert accepted.hidden_states is not None
        find, rows, width = self.source.find, len(accepted.requests), self._layers + 1
        more = width - accepted.target_tokens.shape[1]
        hidden = pad(accepted.hidden_states, (0, 0, 0, more)).reshape(rows * width, -1)
        drafted = Unset()
        result = Unset(
            logits_output=Loose(hidden_states=hidden),
            next_token_ids=pad(accepted.target_tokens, (0, more)).reshape(-1),
            accept_lens=accepted.correct_len + 1,
            num_correct_drafts=accepted.correct_len,
            next_draft_input=drafted,
        )
        # Rows behind the accepted ones go to slot 0: pages taken ahead for them are not ours to give.
        where = (accepted.req_rows, accepted.seq_lens, accepted.correct_len)
        slots = metadata_of_rows(self.context, *where, width).slot_mapping
        batch = Unset(
            forward_mode=find("model_executor.forward_batch_info", "ForwardMode").DECODE,
            seq_lens=accepted.seq_lens.clone(),
            seq_lens_cpu=accepted.seq_lens.clone(),
            seq_lens_sum=int(accepted.seq_lens.sum()),
            req_pool_indices=accepted.req_rows,
            out_cache_loc=slots,
            reqs=[],
            device="cpu",
            model_config=Loose(vocab_size=self.context.target.vocab),
        )
        self._worker._draft_extend_for_decode(batch, result)
        proposed: Tensor = result.next_draft_input.topk_index
        return proposed.to(torch.int64)


class ChainExtend(WorkerSubject):
    """The extend after verify of the multi-layer worker, eagerly."""

    name = "sglang-mtp"
    limits = Limits(models=("probe",), drafts=("mtp",), variants=())
    own = frozenset(f"extend.{name}" for name in ("ids", "positions", "slots", "hidden_in", "kv", "proposal"))
    needs = (WORKER,)

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return the worker's extend, of a rank that is alone."""
        replace_everywhere("enable_num_token_non_padded", lambda *_, **__: False)
        return EngineParts(draft=type("WorkerExtend", (WorkerExtend,), {"source": self.source}))
