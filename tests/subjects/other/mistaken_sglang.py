"""SGLang with mistakes that are turned on one at a time, in captured graphs, too: what must be found in an engine.

PYTHONPATH=tests/subjects/other draftproof check --model DIR --draft eagle --draft-model HEAD
    --subject mistaken_sglang:Mistaken --python python3 --set release=0.5.13 --set engines=DIR
    --set mistake=draft-positions-one-ahead

All are patched in before graphs are captured. What a graph holds asks a flag on the device, so that one engine serves
all of them. The names that are patched are those of 0.5.13.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from draftproof.subjects.making import YesOrNo
from draftproof.subjects.sglang.live import engine
from draftproof.subjects.sglang.live.subject import SglangEngine

_WORKER, _VERIFY = "sglang.srt.speculative.eagle_worker_v2", "sglang.srt.speculative.eagle_info"
_HYBRID = "sglang.srt.layers.attention.hybrid_linear_attn_backend"


class Mistake:
    """A method of SGLang, or a function where `kind` is "", and what is called in its place while it is on.

    `new(original, *given, **named)`, or `new(original, flag, ...)` with a flag [] of the device, if it is `captured`.
    """

    def __init__(self, module: str, kind: str, name: str, new: Callable[..., Any], *, captured: bool = False) -> None:
        self.module, self.kind, self.name, self._new, self._captured = module, kind, name, new, captured
        self._is_on, self._flag = False, None

    def patch(self, device: str = "cuda") -> None:
        """Patch it in, turned off."""
        import torch

        self._flag = torch.zeros((), dtype=torch.int64, device=device)
        of = import_module(self.module)
        of = getattr(of, self.kind) if self.kind else of
        original = getattr(of, self.name)

        def called(*given: Any, **named: Any) -> Any:
            if self._captured:
                return self._new(original, self._flag, *given, **named)
            return self._new(original, *given, **named) if self._is_on else original(*given, **named)

        setattr(of, self.name, called)

    def turn(self, *, on: bool) -> None:
        """Turn it on or off, between two runs."""
        import torch

        self._is_on = on
        assert self._flag is not None
        self._flag.fill_(int(on))
        if self._flag.is_cuda:
            torch.cuda.synchronize()


def _ahead(original: Any, flag: Any, self: Any, batch: Any) -> Any:
    """As sgl-project/sglang#25015: positions of draft steps alone, slots are right."""
    batch.positions.add_(flag)
    made = original(self, batch)
    batch.positions.sub_(flag)
    return made


def _rolled(flag: Any, x: Any) -> Any:
    import torch

    return torch.where(flag.bool(), x.roll(1, 0), x)


def _roll_hidden(original: Any, flag: Any, self: Any, batch: Any) -> Any:
    batch.spec_info.hidden_states = _rolled(flag, batch.spec_info.hidden_states)
    return original(self, batch)


def _roll_slots(original: Any, flag: Any, self: Any, batch: Any) -> Any:
    rows = batch.positions.shape[0]
    batch.out_cache_loc = _rolled(flag, batch.out_cache_loc.view(rows, -1)).flatten()
    return original(self, batch)


def _roll_ids(original: Any, flag: Any, self: Any, batch: Any) -> Any:
    spec = batch.spec_info
    right, spec.topk_index = spec.topk_index, _rolled(flag, spec.topk_index)
    made = original(self, batch)
    spec.topk_index = right
    return made


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


def _told_one_less(original: Any, self: Any, batch: Any, accept_lens: Any, *given: Any) -> Any:
    return original(self, batch, (accept_lens - 1).clamp(min=1), *given)


def _drafting(new: Callable[..., Any]) -> Mistake:
    return Mistake(_WORKER, "EagleDraftWorker", "draft_forward", new, captured=True)


def _commits(change: Callable[[Any], Any]) -> Mistake:
    """Return a mistake in the verify rows [B] whose states are committed, not in what the backend is told."""

    def committing(original: Any, self: Any, last_correct_step_indices: Any, **named: Any) -> Any:
        return original(self, last_correct_step_indices=change(last_correct_step_indices), **named)

    return Mistake(_HYBRID, "HybridLinearAttnBackend", "update_mamba_state_after_mtp_verify", committing)


MISTAKES = {
    "draft-positions-one-ahead": _drafting(_ahead),
    "draft-hidden-of-the-row-before": _drafting(_roll_hidden),
    "draft-slots-of-the-row-before": _drafting(_roll_slots),
    "draft-ids-of-the-row-before": _drafting(_roll_ids),
    "verify-positions-one-ahead": Mistake(_WORKER, "EAGLEWorkerV2", "verify", _verify_ahead),
    "verify-slots-of-the-row-before": Mistake(
        "sglang.srt.speculative.eagle_info_v2", "", "assign_extend_cache_locs_func", _verify_slots
    ),
    "accepted-one-less": Mistake(_VERIFY, "EagleVerifyInput", "sample", _one_less),
    "accept-index-one-behind": Mistake(_VERIFY, "EagleVerifyInput", "sample", _one_behind),
    "extend-selects-the-row-before": Mistake(_WORKER, "EagleDraftWorker", "_draft_extend_for_decode", _other_row),
    "chunk-end-sampled": Mistake(_WORKER, "", "_eagle_prefill_tail_tokens", _sampled),
    "extend-positions-one-ahead": Mistake(
        _VERIFY, "EagleDraftInput", "prepare_for_extend_to_fill_draft_kvcache", _extend_ahead
    ),
    "padding-writes-over-an-entry": Mistake(
        "sglang.srt.model_executor.cuda_graph_runner", "CudaGraphRunner", "replay_prepare", _padding
    ),
    "state-not-committed": _commits(lambda steps: steps.new_full(steps.shape, -1)),
    "state-one-step-too-far": _commits(lambda steps: (steps + 1).clamp(max=3)),
    "state-of-the-row-before": _commits(lambda steps: steps.roll(1, 0)),
    "state-told-one-less": Mistake(_WORKER, "EAGLEWorkerV2", "_mamba_verify_update", _told_one_less),
}
"""Those that begin with "state" need a hybrid."""


class Mistaken(SglangEngine):
    """SGLang with the mistake of a name; "none" is the released engine, with all of them turned off."""

    def __init__(self, mistake: str, release: str = "", engines: str = "", graphs: YesOrNo = "yes") -> None:
        super().__init__(release=release, engines=engines, graphs=graphs)
        self._mistake, self._is_patched = mistake, False

    def turn_to(self, mistake: str) -> None:
        """Have the next runs make this mistake, and no other."""
        self._mistake = mistake
        if self._is_patched:
            for name, one in MISTAKES.items():
                one.turn(on=name == mistake)

    def _started(self, spec: Any) -> Any:
        engine.set_environment()
        import_module("sglang.srt.managers.scheduler")  # the way in: its modules import each other
        for one in MISTAKES.values():
            one.patch()
        self._is_patched = True
        driver = super()._started(spec)
        self.turn_to(self._mistake)
        return driver
