"""SGLang with one mistake each, patched in before its graphs are captured: what must be found in a released engine.

PYTHONPATH=tests/subjects/other draftproof check --model DIR --draft eagle --draft-model HEAD
    --subject mistaken_sglang:Mistaken --python python3 --set release=0.5.13 --set engines=DIR
    --set mistake=draft-positions-one-ahead

The names that are patched are those of 0.5.13. `T` rows of a verify, drafts and bonus.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from draftproof.subjects.making import YesOrNo
from draftproof.subjects.sglang.live import engine
from draftproof.subjects.sglang.live.subject import SglangEngine

MISTAKES: dict[str, Callable[[], None]] = {}
"""name -> what patches SGLang's classes; those that begin with "state" need a hybrid"""
_WORKER, _VERIFY = "sglang.srt.speculative.eagle_worker_v2", "sglang.srt.speculative.eagle_info"
_HYBRID = "sglang.srt.layers.attention.hybrid_linear_attn_backend"


class Mistaken(SglangEngine):
    """SGLang with the mistake of a name; "none" is the released engine."""

    def __init__(self, mistake: str, release: str = "", engines: str = "", graphs: YesOrNo = "yes") -> None:
        super().__init__(release=release, engines=engines, graphs=graphs)
        self._patch = None if mistake == "none" else MISTAKES[mistake]

    def _started(self, spec: Any) -> Any:
        if self._patch is not None:
            engine.set_environment()
            import_module("sglang.srt.managers.scheduler")  # the way in: its modules import each other
            self._patch()
        return super()._started(spec)


def _around(module: str, kind: str, name: str, new: Callable[..., Any]) -> Callable[[], None]:
    """Return a patch that has `new(original, self, ...)` called in the place of a method, or of a function."""

    def patch() -> None:
        of = import_module(module)
        of = getattr(of, kind) if kind else of
        original = getattr(of, name)
        setattr(of, name, lambda *given, **named: new(original, *given, **named))

    return patch


def _before_drafting(change: Callable[[Any], None]) -> Callable[[], None]:
    """Return a patch that changes what the draft's decode is given, in what is captured, too."""

    def drafting(original: Any, self: Any, batch: Any) -> Any:
        change(batch)
        return original(self, batch)

    return _around(_WORKER, "EagleDraftWorker", "draft_forward", drafting)


def _ahead(original: Any, self: Any, batch: Any) -> Any:
    """As sgl-project/sglang#25015: positions of draft steps alone, slots are right."""
    batch.positions.add_(1)
    made = original(self, batch)
    batch.positions.sub_(1)
    return made


def _roll_hidden(batch: Any) -> None:
    batch.spec_info.hidden_states = batch.spec_info.hidden_states.roll(1, 0)


def _roll_slots(batch: Any) -> None:
    rows = batch.positions.shape[0]
    batch.out_cache_loc = batch.out_cache_loc.view(rows, -1).roll(1, 0).flatten()


def _roll_ids(original: Any, self: Any, batch: Any) -> Any:
    spec = batch.spec_info
    right, spec.topk_index = spec.topk_index, spec.topk_index.roll(1, 0)
    made = original(self, batch)
    spec.topk_index = right
    return made


MISTAKES["draft-positions-one-ahead"] = _around(_WORKER, "EagleDraftWorker", "draft_forward", _ahead)
MISTAKES["draft-hidden-of-the-row-before"] = _before_drafting(_roll_hidden)
MISTAKES["draft-slots-of-the-row-before"] = _before_drafting(_roll_slots)
MISTAKES["draft-ids-of-the-row-before"] = _around(_WORKER, "EagleDraftWorker", "draft_forward", _roll_ids)


def _verify_ahead(original: Any, self: Any, batch: Any) -> Any:
    batch.spec_info.positions = batch.spec_info.positions + 1
    return original(self, batch)


def _verify_slots(original: Any, *given: Any, **named: Any) -> Any:
    made = original(*given, **named)
    return made.view(named["batch_size"], -1).roll(1, 0).flatten()


def _one_less(original: Any, self: Any, *given: Any, **named: Any) -> Any:
    tokens, lengths, index = original(self, *given, **named)
    return tokens, (lengths - 1).clamp(min=1), index


def _one_behind(original: Any, self: Any, *given: Any, **named: Any) -> Any:
    """Each accepted node but the first is the one before it."""
    tokens, lengths, index = original(self, *given, **named)
    behind = index.clone()
    behind[:, 1:] -= (index[:, 1:] >= 0).to(index.dtype)
    return tokens, lengths, behind


MISTAKES["verify-positions-one-ahead"] = _around(_WORKER, "EAGLEWorkerV2", "verify", _verify_ahead)
MISTAKES["verify-slots-of-the-row-before"] = _around(
    "sglang.srt.speculative.eagle_info_v2", "", "assign_extend_cache_locs_func", _verify_slots
)
MISTAKES["accepted-one-less"] = _around(_VERIFY, "EagleVerifyInput", "sample", _one_less)
MISTAKES["accept-index-one-behind"] = _around(_VERIFY, "EagleVerifyInput", "sample", _one_behind)


def _other_row(original: Any, self: Any, batch: Any, result: Any) -> Any:
    """The next round begins behind the row before the last that was accepted."""
    right, result.accept_lens = result.accept_lens, (result.accept_lens - 1).clamp(min=1)
    made = original(self, batch, result)
    result.accept_lens = right
    return made


def _sampled(original: Any, batch: Any, next_token_ids: Any) -> Any:
    """As before sgl-project/sglang#26800: the token that was sampled, at the end of every chunk."""
    return next_token_ids.to(batch.input_ids.dtype)


def _extend_ahead(original: Any, self: Any, *given: Any, **named: Any) -> Any:
    batch = original(self, *given, **named)
    batch.positions = batch.positions + 1
    return batch


def _padding(original: Any, self: Any, batch: Any, *given: Any, **named: Any) -> Any:
    """Padded rows of a verify write where the first request keeps its last entry, and not to slot 0."""
    made = original(self, batch, *given, **named)
    table = self.model_runner.req_to_token_pool.req_to_token
    first, last = self.raw_num_token, self.bs * self.num_tokens_per_bs
    self.buffers.out_cache_loc[first:last] = table[batch.req_pool_indices[0], batch.seq_lens[0] - 1]
    return made


MISTAKES["extend-selects-the-row-before"] = _around(_WORKER, "EagleDraftWorker", "_draft_extend_for_decode", _other_row)
MISTAKES["chunk-end-sampled"] = _around(_WORKER, "", "_eagle_prefill_tail_tokens", _sampled)
MISTAKES["extend-positions-one-ahead"] = _around(
    _VERIFY, "EagleDraftInput", "prepare_for_extend_to_fill_draft_kvcache", _extend_ahead
)
MISTAKES["padding-writes-over-an-entry"] = _around(
    "sglang.srt.model_executor.cuda_graph_runner", "CudaGraphRunner", "replay_prepare", _padding
)


def _commits(change: Callable[[Any], Any]) -> Callable[[], None]:
    """Return a patch of the verify rows [B] whose states the backend commits, as it has been told of them."""

    def committing(original: Any, self: Any, last_correct_step_indices: Any, **named: Any) -> Any:
        return original(self, last_correct_step_indices=change(last_correct_step_indices), **named)

    return _around(_HYBRID, "HybridLinearAttnBackend", "update_mamba_state_after_mtp_verify", committing)


def _told_one_less(original: Any, self: Any, batch: Any, accept_lens: Any, *given: Any) -> Any:
    return original(self, batch, (accept_lens - 1).clamp(min=1), *given)


MISTAKES["state-not-committed"] = _commits(lambda steps: steps.new_full(steps.shape, -1))
MISTAKES["state-one-step-too-far"] = _commits(lambda steps: (steps + 1).clamp(max=3))
MISTAKES["state-of-the-row-before"] = _commits(lambda steps: steps.roll(1, 0))
MISTAKES["state-told-one-less"] = _around(_WORKER, "EAGLEWorkerV2", "_mamba_verify_update", _told_one_less)
