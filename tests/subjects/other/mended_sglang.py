"""SGLang 0.5.13 with its known defects mended: what is found in it, and not in this, is theirs; what is in both is not.

PYTHONPATH=tests/subjects/other draftproof check --model DIR --draft eagle --draft-model HEAD
    --subject mended_sglang:Mended --python python3 --set release=0.5.13 --set engines=DIR [--set mends=stops,states]

docs/found.md has each of them. The names that are patched are those of 0.5.13. `flush` "own" has memory given back
between scenarios, as SGLang's `flush_cache` does.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple

from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.subjects.making import YesOrNo
from draftproof.subjects.sglang.live import engine
from draftproof.subjects.sglang.live.subject import SglangEngine

_ENDLESS = 1 << 30


def _stops_first(original: Any, self: Any, new_accepted_len: int = 1) -> None:
    """Look for a stop before the budget."""
    limits, most = self.sampling_params, self.sampling_params.max_new_tokens
    limits.max_new_tokens = _ENDLESS
    original(self, new_accepted_len)
    limits.max_new_tokens = most
    if self.finished() and (self.finished_len is None or self.finished_len <= most):
        return
    self.finished_reason = self.finished_len = None
    original(self, new_accepted_len)


def _cleared_once(original: Any, self: Any, batch: Any) -> None:
    """A verify clears no states and copies none."""
    if not batch.forward_mode.is_target_verify():
        original(self, batch)


_ROWS: list[int] = []
_KEPT: list[Any] = []


def _counted(original: Any, self: Any, batch: Any, *given: Any, **named: Any) -> Any:
    """Keep how many rows a batch has without padding."""
    _ROWS[:] = [batch.batch_size]
    return original(self, batch, *given, **named)


def _padded(original: Any, self: Any, bs: int, requests: Any, mode: Any, spec: Any, lengths: Any) -> Any:
    """Rows of length 1 are padding: let them be those that were added, and no others."""
    if lengths is not None:
        lengths = lengths.new_full(lengths.shape, 2)
        lengths[_ROWS[0] :] = 1
    return original(self, bs, requests, mode, spec, lengths)


def _buffers_stay(original: Any, self: Any, cache: Any, *given: Any) -> Any:
    """Buffers that graphs may have captured are kept when larger ones take their place."""
    old = cache.registry
    made = original(self, cache, *given)
    if old is not None and old is not made:
        _KEPT.append(old)
    return made


def _before_the_norm(
    original: Any,
    self: Any,
    input_ids: Any,
    positions: Any,
    forward_batch: Any,
    input_embeds: Any = None,
    get_embedding: bool = False,
) -> Any:
    """MiMo hands its MTP layer the state that its final norm was given."""
    seen: list[Any] = []
    hook = self.model.norm.register_forward_hook(lambda module, given, made: seen.append(made[1]))
    hidden = self.model(input_ids, positions, forward_batch, input_embeds)
    hook.remove()
    return self.logits_processor(input_ids, hidden, self.lm_head, forward_batch, hidden_states_before_norm=seen[0])


class Patch(NamedTuple):
    """A method of SGLang, and what is called in its place: with the original, and with what that is given."""

    module: str
    kind: str
    method: str
    new: Callable[..., Any]

    def apply(self) -> None:
        of = getattr(import_module(self.module), self.kind)
        original = getattr(of, self.method)

        def called(*given: Any, **named: Any) -> Any:
            return self.new(original, *given, **named)

        setattr(of, self.method, called)


_EXECUTOR, _HYBRID = "sglang.srt.model_executor", "sglang.srt.layers.attention.hybrid_linear_attn_backend"
MENDS = {
    "stops": (Patch("sglang.srt.managers.schedule_batch", "Req", "update_finish_state", _stops_first),),
    "states": (Patch(_HYBRID, "MambaAttnBackendBase", "_execute_deferred_mamba_cow_and_clear", _cleared_once),),
    "padding": (
        Patch(f"{_EXECUTOR}.cuda_graph_runner", "CudaGraphRunner", "replay_prepare", _counted),
        Patch(_HYBRID, "MambaAttnBackendBase", "_replay_metadata", _padded),
    ),
    "buffers": (Patch(f"{_EXECUTOR}.model_runner", "ModelRunner", "_ensure_eager_registry", _buffers_stay),),
    "mimo": (Patch("sglang.srt.models.mimo", "MiMoForCausalLM", "forward", _before_the_norm),),
}


class Mended(SglangEngine):
    """SGLang with what was found in it mended, all of it or what `mends` names."""

    def __init__(
        self,
        release: str = "",
        engines: str = "",
        graphs: YesOrNo = "yes",
        overlap: YesOrNo = "yes",
        mends: str = ",".join(MENDS),
        flush: Literal["kept", "own"] = "kept",
    ) -> None:
        super().__init__(release=release, engines=engines, graphs=graphs, overlap=overlap)
        self._mends, self._flush = tuple(filter(None, mends.split(","))), flush

    def channels(self, scenario: Scenario) -> frozenset[str]:
        found = super().channels(scenario)
        assert isinstance(scenario.model, Checkpoint)
        # With this mend what MiMo hands over is not its last state.
        return found - {"verify.hidden"} if "mimo" in self._mends and "mimo" in scenario.model.path else found

    def _started(self, spec: Any) -> Any:
        engine.set_environment()
        import_module("sglang.srt.managers.scheduler")  # the way in: its modules import each other
        for name in self._mends:
            for patch in MENDS[name]:
                patch.apply()
        driver = super()._started(spec)
        if self._flush == "own":
            flush = driver._scheduler.flush_cache
            driver._scheduler.flush_cache = lambda *_, **__: flush()
        return driver
