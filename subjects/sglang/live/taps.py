"""What the forwards of target and draft are given and return, in eager runs and in captured graphs alike.

`model.forward` is wrapped before anything is captured. The wrapper clones what it sees: while a graph is captured these
clones become nodes of the graph, and as they are kept, nobody else gets their memory. So after each replay they hold
what that replay gave to each forward. `T` rows of a forward, its padding included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_GIVEN = ("ids", "positions", "slots", "hidden_in")


@dataclass(frozen=True)
class TappedForward:
    """One forward: whose, in which of SGLang's modes, and its tensors by name.

    `ids`, `positions`, `slots` [T], `hidden_in` [T, D] where it takes any; `logits` and `hidden` of the rows that the
    engine asked for.
    """

    is_draft: bool
    mode: str
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def get(self, name: str) -> np.ndarray | None:
        """Return a tensor, if this forward has it."""
        return self.tensors.get(name)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.tensors[name]


class GraphTaps:
    """Hooks on SGLang's classes, set before an engine is made. `take` returns the forwards since the last time."""

    def __init__(self) -> None:
        self.is_on = False
        self._forwards: list[TappedForward] = []
        self._graphs: dict[int, list[tuple[bool, str, dict[str, Any]]]] = {}
        self._captured: int | None = None

    def install(self) -> None:
        """Wrap PyTorch's graphs, and the model of every runner that is loaded from now on."""
        import torch
        from sglang.srt.model_executor.model_runner import ModelRunner

        graph: Any = torch.cuda.CUDAGraph
        begin, end, replay, load = graph.capture_begin, graph.capture_end, graph.replay, ModelRunner.load_model

        def beginning(one: Any, *given: Any, **named: Any) -> Any:
            self._captured = id(one)
            self._graphs[self._captured] = []
            return begin(one, *given, **named)

        def ending(one: Any) -> Any:
            self._captured = None
            return end(one)

        def replaying(one: Any) -> None:
            replay(one)
            if self.is_on:
                self._forwards += [_read(*entry) for entry in self._graphs.get(id(one), ())]

        def loading(runner: Any, *given: Any, **named: Any) -> Any:
            returned = load(runner, *given, **named)
            self._watch(runner.model, is_draft=runner.is_draft_worker)
            return returned

        graph.capture_begin, graph.capture_end, graph.replay = beginning, ending, replaying
        ModelRunner.load_model = loading

    def take(self) -> list[TappedForward]:
        """Return what ran since the last time."""
        taken, self._forwards = self._forwards, []
        return taken

    def _watch(self, model: Any, *, is_draft: bool) -> None:
        import torch

        forward: Callable[..., Any] = model.forward

        def watched(input_ids: Any, positions: Any, batch: Any, *given: Any, **named: Any) -> Any:
            capturing = torch.cuda.is_current_stream_capturing()
            if not capturing and not self.is_on:
                return forward(input_ids, positions, batch, *given, **named)
            hidden = getattr(batch.spec_info, "hidden_states", None) if is_draft else None
            seen = _cloned(zip(_GIVEN, (input_ids, positions, batch.out_cache_loc, hidden), strict=True))
            returned = forward(input_ids, positions, batch, *given, **named)
            results = (("logits", "next_token_logits"), ("hidden", "hidden_states"))
            seen |= _cloned((name, getattr(returned, of, None)) for name, of in results)
            entry = (is_draft, batch.forward_mode.name, seen)
            if capturing and self._captured is not None:
                self._graphs[self._captured].append(entry)
            else:
                self._forwards.append(_read(*entry))
            return returned

        model.forward = watched


def _cloned(tensors: Any) -> dict[str, Any]:
    return {name: one.clone() for name, one in tensors if one is not None}


def _read(is_draft: bool, mode: str, tensors: dict[str, Any]) -> TappedForward:
    return TappedForward(is_draft, mode, {name: array(one) for name, one in tensors.items()})


def array(x: Any) -> np.ndarray:
    """Return a tensor of any float or integer dtype as an array of this process."""
    x = x.detach()
    made: np.ndarray = (x.float() if x.is_floating_point() else x).cpu().numpy()
    return made
