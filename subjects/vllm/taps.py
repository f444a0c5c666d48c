"""What is seen inside of an engine step: the forwards of target and drafter, by hooks on their modules.

`T` rows of a forward, all requests of the batch after one another in its order; `R` requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Forward:
    """One forward of a model: what went in and came out, T rows each.

    `logits` are for the rows that were asked for, and `states` are what they were computed from: after the final norm,
    which some models leave to the code that computes logits.
    """

    ids: np.ndarray
    positions: np.ndarray
    slots: np.ndarray | None
    hidden_in: np.ndarray | None
    hidden: np.ndarray
    logits: np.ndarray | None = None
    states: np.ndarray | None = None


@dataclass
class StepSeen:
    """One engine step: forwards of the target (one, or none) and of the drafter; `features` that the drafter joins."""

    order: tuple[str, ...] = ()
    target: list[Forward] = field(default_factory=list)
    drafter: list[Forward] = field(default_factory=list)
    features: np.ndarray | None = None


class ModelTaps:
    """Hooks on a target and, if there is one, on a drafter. `seen` is of the current step."""

    def __init__(self, runner: Any) -> None:
        self.seen = StepSeen()
        self.active = False
        self._runner = runner
        self._undo: list[Callable[[], None]] = []
        self._watch(runner.model, lambda: self.seen.target)
        drafter = getattr(getattr(runner, "drafter", None), "model", None)
        if drafter is not None:
            self._watch(drafter, lambda: self.seen.drafter)
            self._watch_features(drafter)

    def close(self) -> None:
        """Take all hooks off."""
        while self._undo:
            self._undo.pop()()

    def _watch(self, model: Any, forwards: Callable[[], list[Forward]]) -> None:
        names = [layer.layer_name for layer in attention_layers(model)]

        def after(returned: Any, *given: Any, **named: Any) -> None:
            order = tuple(self._runner.input_batch.req_ids)
            self.seen.order = self.seen.order or order
            hidden = returned[0] if isinstance(returned, tuple) else returned
            values = dict(zip(("input_ids", "positions", "hidden_states"), given, strict=False)) | named
            forwards().append(
                Forward(
                    ids=_array(values["input_ids"]),
                    positions=_array(values["positions"]),
                    slots=_slots(names),
                    hidden_in=_array(values.get("hidden_states")),
                    hidden=_array(hidden),
                )
            )

        def states(_: Any, given: tuple[Any, ...]) -> None:
            if self.active and forwards() and forwards()[-1].states is None:
                forwards()[-1].states = _array(given[1])

        # Not a hook of the module: a model that vLLM may compile has a __call__ of its own, which runs none.
        self._replace(model, "forward", after)
        if hasattr(model, "logits_processor"):
            self._undo.append(model.logits_processor.register_forward_pre_hook(states).remove)
        self._replace(model, "compute_logits", lambda logits, *_, **__: _note_logits(forwards(), logits))

    def _watch_features(self, drafter: Any) -> None:
        if hasattr(drafter, "combine_hidden_states"):
            self._replace(drafter, "combine_hidden_states", lambda _, features, **__: self._note_features(features))

    def _note_features(self, features: Any) -> None:
        self.seen.features = _array(features)

    def _replace(self, model: Any, name: str, note: Callable[..., None]) -> None:
        """Have `note` called with what a method of the model returned and was given."""
        original = getattr(model, name)

        def noted(*given: Any, **named: Any) -> Any:
            returned = original(*given, **named)
            if self.active:
                note(returned, *given, **named)
            return returned

        setattr(model, name, noted)
        self._undo.append(lambda: delattr(model, name))


def attention_layers(model: Any) -> list[Any]:
    """Return the modules of a model that have a KV cache of their own, in the order of the model."""
    return [one for one in model.modules() if hasattr(one, "kv_cache") and hasattr(one, "layer_name")]


def _note_logits(forwards: list[Forward], logits: Any) -> None:
    if forwards and forwards[-1].logits is None:
        forwards[-1].logits = _array(logits)


def _slots(names: list[str]) -> np.ndarray | None:
    """Return the slots of a forward, by its context: older releases have them in the metadata of a layer only."""
    from vllm.forward_context import get_forward_context

    context = get_forward_context()
    mapping = getattr(context, "slot_mapping", None)
    if isinstance(mapping, dict) and names and names[0] in mapping:
        return _array(mapping[names[0]])
    metadata = context.attn_metadata
    own = metadata.get(names[0]) if isinstance(metadata, dict) and names else None
    return _array(getattr(own, "slot_mapping", None))


def _array(x: Any) -> Any:
    return None if x is None else x.detach().to("cpu").clone().numpy()
