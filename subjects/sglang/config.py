"""What the constructor of an MTP draft does to the configuration that target and draft share."""

from __future__ import annotations

import sys
import zlib
from types import SimpleNamespace
from typing import Any

from draftproof.engine.models.config_fields import FULL_ATTENTION, LINEAR_ATTENTION
from draftproof.engine.subject.pair import Pair
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.making import SubjectNameError
from draftproof.subjects.sglang.bare import StubAttributes
from draftproof.subjects.sglang.worker import Place, WorkerSubject
from draftproof.subjects.wheels.stubs import stub_of

_MODELS: dict[str, Place] = {
    "qwen3_next": ("models.qwen3_next_mtp", "Qwen3NextForCausalLMMTP"),
    "qwen3_5": ("models.qwen3_5_mtp", "Qwen3_5ForCausalLMMTP"),
}
BUILT = ("Qwen3NextModel", "Qwen3_5ForCausalLM", "ParallelLMHead", "LogitsProcessor", "get_pp_group", "GemmaRMSNorm")
"""What a constructor makes of the configuration; here these are stubs."""


class SharedConfig(SimpleNamespace):
    """The fields that a constructor reads or writes; `listed` are the layers' types as the model has them."""

    def seen(self) -> tuple[int, ...]:
        """Return the fingerprint of what a reader sees now; an interval of 1 makes full attention of every layer."""
        listed, layers = self.listed, self.num_hidden_layers
        kinds = [FULL_ATTENTION if self.full_attention_interval == 1 else kind for kind in listed[:layers]]
        text = repr(sorted(vars(self).items()))
        return (zlib.crc32(text.encode()), len(kinds), *(int(kind == LINEAR_ATTENTION) for kind in kinds))


class DraftConfig(WorkerSubject):
    """The constructor of a draft of Qwen3-Next or Qwen3.5: `model` is "qwen3_next" or "qwen3_5"."""

    name = "sglang config"
    own = frozenset({"config.seen"})

    def __init__(self, wheel: str, model: str = "qwen3_next") -> None:
        if model not in _MODELS:
            raise SubjectNameError(f"invalid setting model={model!r}: expected qwen3_next or qwen3_5")
        self._place = _MODELS[model]
        self.needs = (self._place,)
        super().__init__(wheel)

    def models(self, scenario: Scenario) -> Pair:
        """Return our models, with what was seen of a configuration while the release built its draft."""
        pair = super().models(scenario)
        interval = 0 if scenario.model.linear else 1  # type: ignore[union-attr]
        config = SharedConfig(
            num_hidden_layers=len(pair.target.layer_types),
            full_attention_interval=interval,
            listed=pair.target.layer_types,
            hidden_size=8,
            vocab_size=16,
            rms_norm_eps=1e-6,
            tie_word_embeddings=False,
        )
        if not scenario.model.linear:  # type: ignore[union-attr]
            return pair
        handed = config.seen()
        self._build(config)
        seen = (handed, handed, config.seen())
        return pair._replace(config=config, seen=seen)

    def seen_last(self, config: Any) -> tuple[int, ...]:
        """Return the fingerprint of the configuration at the end."""
        return config.seen() if isinstance(config, SharedConfig) else super().seen_last(config)

    def _build(self, config: SharedConfig) -> None:
        kind = self._found[self._place]
        module = sys.modules[kind.__module__]
        for name in BUILT:
            if hasattr(module, name):
                setattr(module, name, stub_of(module.__name__, name))
        for name, value in (("get_tensor_model_parallel_world_size", 1), ("get_global_server_args", StubAttributes())):
            if hasattr(module, name):
                setattr(module, name, lambda value=value: value)
        kind(config)
