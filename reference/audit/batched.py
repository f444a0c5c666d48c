"""The fast pass: Llama and Qwen3 over many texts at once, with a cache, on any device.

Held to the slow definition by tests/reference/test_audit_batched.py: the same rounds, with every mistake.
Shapes: `R` requests, one a text, `T` rows of each, `J` positions of a context, `D` hidden size, `Nq` query heads, `N`
key-value heads, `H` head size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from draftproof.properties.values.checkpoint_config.eagle3 import Eagle3Config
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig
from draftproof.reference.models.attention import head_size, kv_head_count, project, project_heads
from draftproof.reference.models.layers import mlp, rms_norm, rope_frequencies
from draftproof.reference.models.llama import ReferenceLlama
from draftproof.reference.models.target import TargetPass

_AT_ONCE = 1 << 14
"""Rows whose states a pass computes at once; more texts take turns."""


class Heads(NamedTuple):
    """Queries [R, T, Nq, H], keys and values [R, T, N, H], turned."""

    q: Tensor
    k: Tensor
    v: Tensor


def heads(x: Tensor, weights: Mapping[str, Tensor], config: LlamaConfig | Eagle3Config, positions: Tensor) -> Heads:
    """Return what attention is made of for x [R, T, D] at positions [R, T]."""
    size = head_size(config)
    q, k, v = (project_heads(x, weights, name, size, config.rms_norm_eps) for name in "qkv")
    frequencies = rope_frequencies(config.rope_parameters, size).to(x)
    angle = (positions.to(x.dtype)[..., None] * frequencies)[:, :, None]
    return Heads(_turned(q, angle), _turned(k, angle), v)


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Return attention of q [R, T, Nq, H] over k, v [R, J, N, H], of which a row sees `visible` [R, T, J]."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2).transpose(1, 2) for x in (k, v))
    out = scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=visible[:, None])
    return out.transpose(1, 2).flatten(2)


class BatchedTarget:
    """A Llama or Qwen3 on a device, in the dtype that it was read in."""

    def __init__(self, target: ReferenceLlama, device: torch.device) -> None:
        self.config, self.device = target.config, device
        self.embedding, self.final_norm = target.embedding.to(device), target.final_norm.to(device)
        self.lm_head = self.embedding if target.lm_head is target.embedding else target.lm_head.to(device)
        self._layers = [{name: x.to(device) for name, x in layer.items()} for layer in target.layers]
        self._cache: list[tuple[Tensor, Tensor]] = []

    def decode(self, prompts: Sequence[Sequence[int]], count: int) -> list[tuple[int, ...]]:
        """Return prompts with `count` tokens of greedy decoding after each."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        longest = int(lengths.max())
        tokens = padded(prompts, longest + count, self.device)
        self._allocate(len(prompts), longest + count)
        rows = torch.arange(len(prompts), device=self.device)
        hidden = self._run(tokens[:, :longest], self._range(len(prompts), longest)).hidden[rows, lengths - 1]
        for step in range(count):
            if step:
                hidden = self._run(tokens[rows, lengths - 1][:, None], lengths[:, None] - 1).hidden[:, 0]
            tokens[rows, lengths] = (hidden @ self.lm_head.T).argmax(dim=-1)
            lengths = lengths + 1
        return [tuple(row[:length]) for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]

    def states(self, tokens: Tensor, kept: Collection[int]) -> TargetPass:
        """Return the pass over tokens [R, J], with the outputs of the kept layers, and remember its entries."""
        count, length = tokens.shape
        self._allocate(count, length)
        share = max(1, _AT_ONCE // length)
        parts = [
            self._run(tokens[first : first + share], self._range(count, length)[first : first + share], kept, first)
            for first in range(0, count, share)
        ]
        layers = zip(*(part.layers for part in parts), strict=True)
        hidden = torch.cat([part.hidden for part in parts])
        return TargetPass(hidden, hidden[:0], (), layers=tuple(map(torch.cat, layers)))

    def rows_instead(self, tokens: Tensor, positions: Tensor, kept: Collection[int]) -> TargetPass:
        """Return the pass of other tokens [R, T] at positions [R, T] of the texts last passed, left as they are."""
        rows = torch.arange(len(tokens), device=self.device)[:, None]
        held = [(k[rows, positions].clone(), v[rows, positions].clone()) for k, v in self._cache]
        done = self._run(tokens, positions, kept)
        for (k, v), (old_k, old_v) in zip(self._cache, held, strict=True):
            k[rows, positions], v[rows, positions] = old_k, old_v
        return done

    def _run(self, ids: Tensor, positions: Tensor, kept: Collection[int] = (), first: int = 0) -> TargetPass:
        """Run ids [R, T] at positions [R, T] of the cached texts `first`, .. and write their entries."""
        x, outputs = self.embedding[ids], list[Tensor]()
        texts = torch.arange(first, first + len(ids), device=self.device)[:, None]
        length = self._cache[0][0].shape[1]
        visible = torch.arange(length, device=self.device) <= positions[..., None]
        for number, (weights, (k, v)) in enumerate(zip(self._layers, self._cache, strict=True)):
            made = heads(self._norm(x, weights["input_layernorm.weight"]), weights, self.config, positions)
            k[texts, positions], v[texts, positions] = made.k, made.v
            here = slice(first, first + len(ids))
            x = x + project(attend(made.q, k[here], v[here], visible), weights, "o_proj")
            x = x + mlp(self._norm(x, weights["post_attention_layernorm.weight"]), weights)
            outputs.append(x if number in kept else x[..., :0])
        hidden = self._norm(x, self.final_norm)
        return TargetPass(hidden, hidden[:0], (), layers=tuple(outputs))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.config.rms_norm_eps)

    def _allocate(self, texts: int, length: int) -> None:
        shape = (texts, length, kv_head_count(self.config), head_size(self.config))
        self._cache = [(self.embedding.new_zeros(shape), self.embedding.new_zeros(shape)) for _ in self._layers]

    def _range(self, texts: int, length: int) -> Tensor:
        return torch.arange(length, device=self.device).expand(texts, length)


def padded(texts: Sequence[Sequence[int]], length: int, device: torch.device) -> Tensor:
    """Return texts side by side [R, length], zeros behind each."""
    return torch.tensor([[*text, *[0] * (length - len(text))] for text in texts], device=device)


def _turned(x: Tensor, angle: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
