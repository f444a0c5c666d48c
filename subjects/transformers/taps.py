"""What the passes of a model show: forward hooks on its modules, and entries of its cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

_POSITIONS, _NORM = "rotary_emb", "norm"


def vector(values: Tensor) -> np.ndarray:
    """Return a vector as traces hold it."""
    array = values.detach().reshape(-1).to(torch.float64).numpy().copy()
    array.flags.writeable = False
    return array


def choice(logits: Tensor) -> tuple[int, float]:
    """Return the best token and by how much it is the best."""
    best, second = logits.topk(2).values.tolist()
    return int(logits.argmax()), float(best - second)


class TargetTaps:
    """Keeps the ids, positions and last hidden states of the target's latest pass, and of no other."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model, self._base = model, model.get_decoder()
        self._handles: list[Any] = []
        self._inside = False
        self.ids: tuple[int, ...] = ()
        self.positions: tuple[int, ...] = ()
        self.hidden: Tensor | None = None

    @staticmethod
    def of(model: PreTrainedModel) -> frozenset[str]:
        """Return the channels that the modules of this model can carry."""
        base = model.get_decoder()
        by_module = {"verify.positions": _POSITIONS, "verify.hidden": _NORM}
        return frozenset({"verify.ids", *(channel for channel, module in by_module.items() if hasattr(base, module))})

    def attach(self) -> None:
        """Begin to look."""
        self._handles.append(self._model.register_forward_pre_hook(self._begin, with_kwargs=True))
        self._handles.append(self._model.register_forward_hook(self._end))
        if rotary := getattr(self._base, _POSITIONS, None):
            self._handles.append(rotary.register_forward_pre_hook(self._positions, with_kwargs=True))
        if norm := getattr(self._base, _NORM, None):
            self._handles.append(norm.register_forward_hook(self._hidden))

    def detach(self) -> None:
        """Look no more."""
        while self._handles:
            self._handles.pop().remove()

    def rows(self, count: int) -> dict[str, tuple[Any, ...]]:
        """Return by channel what the last `count` rows of the pass were run with."""
        seen: dict[str, tuple[Any, ...]] = {"verify.ids": self.ids[-count:]}
        seen["verify.positions"] = self.positions[-count:]
        if self.hidden is not None:
            seen["verify.hidden"] = tuple(vector(row) for row in self.hidden[0, -count:])
        return seen

    def _begin(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        self._inside, self.ids, self.positions, self.hidden = True, tuple(ids[0].tolist()), (), None

    def _end(self, *_: object) -> None:
        self._inside = False

    def _positions(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        if self._inside and not self.positions:
            self.positions = tuple(positions[0].tolist())

    def _hidden(self, _module: nn.Module, _args: object, output: Tensor) -> None:
        if self._inside:
            self.hidden = output


class StepTaps:
    """Keeps the last id and position of every pass of an assistant."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._handles: list[Any] = [model.register_forward_pre_hook(self._pass, with_kwargs=True)]
        rotary = model.get_decoder().rotary_emb
        self._handles.append(rotary.register_forward_pre_hook(self._position, with_kwargs=True))
        self.ids: list[int] = []
        self.positions: list[int] = []

    def clear(self) -> None:
        """Forget the steps so far."""
        self.ids.clear()
        self.positions.clear()

    def detach(self) -> None:
        """Look no more."""
        while self._handles:
            self._handles.pop().remove()

    def _pass(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        self.ids.append(int(ids[0, -1]))

    def _position(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        self.positions.append(int(positions[0, -1]))


def entries_of(model: PreTrainedModel) -> tuple[int, ...]:
    """Return the layers whose cache holds one key and one value a position, uncompressed."""
    config = model.config.get_text_config()
    if getattr(config, "kv_lora_rank", None):
        return ()
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return tuple(layer for layer, kind in enumerate(kinds) if kind == "full_attention")


def entries(cache: Any, layers: tuple[int, ...], first: int) -> dict[tuple[int, int], np.ndarray]:
    """Return by (layer, position), from position `first` on, the entries that a cache holds: keys, then values."""
    held = {}
    for layer in layers:
        keys, values = cache.layers[layer].keys[0], cache.layers[layer].values[0]
        for position in range(first, keys.shape[1]):
            both = torch.cat((keys[:, position].reshape(-1), values[:, position].reshape(-1)))
            held[layer, position] = vector(both)
    return held
