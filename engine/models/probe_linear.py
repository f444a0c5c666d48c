"""A gated delta net layer of a probe, in the ring of integers modulo 2^64 (docs/semantics/probes.md).

`T` packed tokens, `D` lanes, `Q` channels of the convolution, `U` value heads, `E` value size; all int64.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache, RecurrentWeights
from draftproof.engine.models.probe_ops import linear, mix
from draftproof.engine.models.probe_parallel import mixing, reduced
from draftproof.engine.ranks import SOLO, Solo


class ProbeLinear:
    """Layer `index` of the model, number `order` among the linear ones."""

    def __init__(self, weights: Mapping[str, Tensor], index: int, order: int, group: Solo = SOLO) -> None:
        prefix = f"layers.{index}"
        own = (weights[f"{prefix}.{name}"] for name in ("conv.weight", "a_log", "dt_bias"))
        # A state of zeros is no state, as for a real model.
        begin = (weights[f"{prefix}.start.{name}"] for name in ("conv", "ssm"))
        starts = (tensor if bool(tensor.any()) else None for tensor in begin)
        projected = [weights[f"{prefix}.{name}.weight"] for name in ("qkv", "z", "a", "b")]
        self._order = order
        self._project = torch.cat(projected).contiguous()
        self._sizes = [len(part) for part in projected]
        self._norm = weights[f"{prefix}.norm.weight"]
        self._o, self._mlp = weights[f"{prefix}.o.weight"], mixing(weights[f"{prefix}.mlp.weight"], group)
        self._reduced = reduced(group)
        self._own = RecurrentWeights(*own, *starts)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self._project, self._norm, self._o, *self._mlp.tensors(), *self._own.parameters)

    def forward(self, x: Tensor, metadata: AttentionMetadata, cache: Cache) -> tuple[Tensor, Tensor | None]:
        """x [T, D] -> (x [T, D], no carry)."""
        qkv, z, a, b = (part.contiguous() for part in linear(x, self._project).split(self._sizes, dim=1))
        out = cache.recur(self._order, self._own, qkv, a, b, metadata)
        flat = out.view(-1, out.shape[2])
        gated = torch.empty_like(flat)
        kernels.gated_norm(gated, flat, z.view(flat.shape), self._norm, 0.0)
        x = x + mix(self._reduced(linear(gated.view(out.shape).flatten(1), self._o)))
        return x + mix(self._mlp(x)), None
