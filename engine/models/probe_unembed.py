"""Logits of a probe's hidden states, whole or by parts of the vocabulary; `T` rows, `D` lanes, `V` vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.engine.models.probe_ops import BOOST, favourite, linear, mix, mixed, shift
from draftproof.engine.models.probe_parallel import vocabulary_part
from draftproof.engine.ranks import SOLO, Solo
from draftproof.engine.tensor_ranks import TensorGroup

_NOBODY = -2
"""In place of the id of a row that is there so that ranks have as many; -1 stands for no favourite."""


class Unembedding:
    """Logits of hidden states: a hash of all lanes, of `bits` resolution; `weight` [V, D].

    The favourite of the carry is raised above the rest in `agreement` of 256 contexts. Rows of `weight` may be for the
    `target_ids` [V'] of a vocabulary of `vocab` only. A tensor-parallel rank computes the logits of its part of the
    rows, and then gathers the logits of all ranks.
    """

    def __init__(
        self,
        weight: Tensor,
        bits: int,
        agreement: int,
        target_ids: Tensor | None = None,
        vocab: int = 0,
        group: Solo = SOLO,
    ) -> None:
        self._weight, self._bits, self._agreement = weight, bits, agreement
        self._ids = torch.arange(weight.shape[0], device=weight.device) if target_ids is None else target_ids
        self._vocab, self._rows = vocab or weight.shape[0], weight.shape[0]
        self._group = group if isinstance(group, TensorGroup) else None
        if self._group:
            self._weight, places = vocabulary_part(weight, self._group)
            known = self._ids.index_select(0, places.clamp(max=self._rows - 1))
            self._ids = known.masked_fill(places >= self._rows, _NOBODY)

    def __call__(self, states: Tensor) -> Tensor:
        """[T, D] -> [T, V], integers below 2^24 as float32."""
        base = shift(mix(linear(states, self._weight)), 64 - self._bits)
        carry = mixed(states[:, 0])
        chosen = favourite(carry, self._vocab)
        if self._agreement < 256:
            chosen = torch.where((carry & 255) < self._agreement, chosen, -1)
        logits = torch.add(base, self._ids == chosen.unsqueeze(1), alpha=BOOST).to(torch.float32)
        return self._group.all_gather(logits)[:, : self._rows].contiguous() if self._group else logits

    def tensors(self) -> tuple[Tensor, ...]:
        return (self._weight, self._ids)
