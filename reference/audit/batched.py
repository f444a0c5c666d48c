"""The fast pass: targets over many texts at once, with a cache, on any device.

Held to the slow definition by tests/reference/test_audit_batched.py: the same rounds, with every mistake.
Shapes: `R` requests, one a text, `T` rows of each, `J` positions of a context, `D` hidden size, `N` key-value heads,
`H` head size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy

import torch
from torch import Tensor

from draftproof.reference.audit.batched_attention import ATTENTION, attend
from draftproof.reference.audit.heads import Model
from draftproof.reference.models.target import TargetPass

_AT_ONCE = 1 << 14
"""The most rows whose states a pass computes at once; further texts take turns."""


class BatchedTarget:
    """A model on a device, in the dtype that it was read in; of the architectures of `ATTENTION`."""

    def __init__(self, target: Model, device: torch.device) -> None:
        self.config, self.device, self.attention = target.config, device, ATTENTION[type(target)]
        self.embedding, self.final_norm = target.embedding.to(device), target.final_norm.to(device)
        self.lm_head = self.embedding if target.lm_head is target.embedding else target.lm_head.to(device)
        self._layers = [on_device(layer, device) for layer in target.layers]
        # Norms and experts are as the model has them; its weights are needed once, on the device.
        self.model = copy(target)
        self.model.tensors, self.model.layers = {}, ()
        self.model.embedding, self.model.lm_head, self.model.final_norm = self.embedding, self.lm_head, self.final_norm
        self._cache: list[tuple[Tensor, Tensor]] = []
        self._room = (0, 0)

    def decode(self, prompts: Sequence[Sequence[int]], count: int) -> list[tuple[int, ...]]:
        """Return prompts with `count` tokens of greedy decoding after each."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        longest = int(lengths.max())
        tokens = padded(prompts, longest + count, self.device)
        self.allocate(len(prompts), longest + count)
        rows = torch.arange(len(prompts), device=self.device)
        hidden = self.run(tokens[:, :longest], self._range(len(prompts), longest)).hidden[rows, lengths - 1]
        for step in range(count):
            if step:
                hidden = self.run(tokens[rows, lengths - 1][:, None], lengths[:, None] - 1).hidden[:, 0]
            tokens[rows, lengths] = (hidden @ self.lm_head.T).argmax(dim=-1)
            lengths = lengths + 1
        return [tuple(row[:length]) for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]

    def states(self, tokens: Tensor, kept: Collection[int]) -> TargetPass:
        """Return the pass over tokens [R, J], with the outputs of the kept layers, and remember its entries."""
        count, length = tokens.shape
        self.allocate(count, length)
        parts = [
            self.run(tokens[here], self._range(count, length)[here], kept, first=here.start)
            for here in in_turns(count, length)
        ]
        layers = zip(*(part.layers for part in parts), strict=True)
        hidden = torch.cat([part.hidden for part in parts])
        return TargetPass(hidden, hidden[:0], (), layers=tuple(map(torch.cat, layers)))

    def rows_instead(self, tokens: Tensor, positions: Tensor, kept: Collection[int]) -> TargetPass:
        """Return the pass of other tokens [R, T] at positions [R, T] of the texts last passed, left as they are."""
        rows = torch.arange(len(tokens), device=self.device)[:, None]
        held = [(k[rows, positions].clone(), v[rows, positions].clone()) for k, v in self._cache]
        done = self.run(tokens, positions, kept)
        for (k, v), (old_k, old_v) in zip(self._cache, held, strict=True):
            k[rows, positions], v[rows, positions] = old_k, old_v
        return done

    def run(
        self,
        ids: Tensor,
        positions: Tensor,
        kept: Collection[int] = (),
        *,
        first: int = 0,
        slots: Tensor | None = None,
    ) -> TargetPass:
        """Run ids [R, T] at positions [R, T] of the cached texts `first`, .. and write their entries.

        They go to the slots [R, T] of their positions, or to others; a row sees the slots up to its own.
        """
        x, outputs = self.embedding[ids], list[Tensor]()
        texts, here = torch.arange(first, first + len(ids), device=self.device)[:, None], slice(first, first + len(ids))
        slots = positions if slots is None else slots
        visible = torch.arange(self._room[1], device=self.device) <= slots[..., None]
        for number, weights in enumerate(self._layers):

            def over(q: Tensor, k: Tensor, v: Tensor, number: int = number) -> Tensor:
                cached_k, cached_v = self._entries(number, k, v)
                cached_k[texts, slots], cached_v[texts, slots] = k, v
                return attend(q, cached_k[here], cached_v[here], visible)

            x = self.run_layer(x, weights, positions, over)
            outputs.append(x if number in kept else x[..., :0])
        hidden = self.model.norm(x, self.final_norm)
        return TargetPass(hidden, hidden[:0], (), layers=tuple(outputs))

    def run_layer(
        self,
        x: Tensor,
        weights: Mapping[str, Tensor],
        positions: Tensor,
        over: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Run a layer of the target's kind over x [R, T, D]; `over(q, k, v)` is what its heads attend to."""
        normed = self.model.norm(x, weights["input_layernorm.weight"])
        attended = over(*self.attention.heads(normed, weights, self.config, positions))
        return self.feed_forward(x + self.attention.out(attended, normed, weights), weights)

    def feed_forward(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """Return x [R, T, D] and what the MLP or the experts of a layer make of it."""
        normed = self.model.norm(x, weights["post_attention_layernorm.weight"])
        return x + self.model.feed_forward(normed.flatten(0, 1), weights).out.unflatten(0, x.shape[:2])

    def blank(self, holes: Tensor) -> None:
        """Set the entries of these slots [R, J] to zero in every layer, as if they had never been written."""
        for entries in self._cache:
            for one in entries:
                one[holes] = 0

    def allocate(self, texts: int, length: int) -> None:
        """Forget all entries, and make room for this many texts of this length."""
        self._cache, self._room = [], (texts, length)

    def _entries(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values [R, J, N, H] of a layer, which are of the sizes of these."""
        if layer == len(self._cache):
            self._cache.append((k.new_zeros(*self._room, *k.shape[2:]), v.new_zeros(*self._room, *v.shape[2:])))
        return self._cache[layer]

    def _range(self, texts: int, length: int) -> Tensor:
        return torch.arange(length, device=self.device).expand(texts, length)


def in_turns(count: int, length: int) -> Iterator[slice]:
    """Yield which of `count` texts of a length are computed at once."""
    share = max(1, _AT_ONCE // length)
    for first in range(0, count, share):
        yield slice(first, min(count, first + share))


def on_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return tensors by name on a device."""
    return {name: x.to(device) for name, x in tensors.items()}


def padded(texts: Sequence[Sequence[int]], length: int, device: torch.device) -> Tensor:
    """Return texts side by side [R, length], zeros behind each."""
    return torch.tensor([[*text, *[0] * (length - len(text))] for text in texts], device=device)
