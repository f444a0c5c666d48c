"""DFlash over many texts at once: what `others.BlockPlayer` says.

Shapes: `R` requests, one a text, `J` positions of a context, `W` rows of a block, `K` drafts of a round, `D` hidden
size, `N` key-value heads, `H` head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.reference.audit.batched import BatchedTarget, on_device
from draftproof.reference.audit.batched_attention import attend, turned
from draftproof.reference.audit.heads import features
from draftproof.reference.audit.rules import BlockRules
from draftproof.reference.models.attention import project_heads
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.layers import mlp, rms_norm
from draftproof.reference.models.target import TargetPass


class BlockDraft:
    """A DFlash model on a device, of a target there."""

    def __init__(self, model: ReferenceDFlashModel, target: BatchedTarget) -> None:
        self.config, self.target = model.config, target
        names = ("encoder.fc", "encoder.output_norm_enc", "norm")
        self.fc, self.context_norm, self.norm = (model.tensors[f"{name}.weight"].to(target.device) for name in names)
        self.layers = [on_device(layer, target.device) for layer in model.layers]

    def kept(self, layers: int) -> set[int]:
        """See `BatchedDraft`."""
        return {min(max(layer + by, 0), layers - 1) for layer in self.config.target_layer_ids for by in (-1, 0, 1)}

    def player(self, whole: TargetPass, tokens: Tensor, prompts: Tensor, rules: BlockRules) -> BatchedBlocks:
        """See `BatchedDraft`."""
        return BatchedBlocks(self, whole, tokens, rules)

    def heads(self, x: Tensor, layer: int, name: str, positions: Tensor) -> Tensor:
        """Return queries, keys or values [R, T, Nq or N, H] of x [R, T, D], the first two turned."""
        size, eps = self.config.head_dim, self.config.rms_norm_eps
        made = project_heads(x, self.layers[layer], name, size, eps)
        return made if name == "v" else turned(made, self.config.rope_parameters, positions)

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the norm of x [.., D]."""
        return rms_norm(x, weight, self.config.rms_norm_eps)


class BatchedBlocks:
    """See `BatchedPlayer`."""

    def __init__(self, draft: BlockDraft, whole: TargetPass, tokens: Tensor, rules: BlockRules) -> None:
        self._draft, self._tokens, self._rules = draft, tokens, rules
        self._places = torch.arange(tokens.shape[1], device=tokens.device)
        ids = draft.config.target_layer_ids
        given = features(whole, ids[::-1] if rules.reversed_layers else ids, rules.state)
        context, at = draft.normed(given @ draft.fc.T, draft.context_norm), self._places.expand(tokens.shape)
        self._entries = [tuple(draft.heads(context, i, name, at) for name in "kv") for i in range(len(draft.layers))]

    def propose(self, context: Tensor, counts: Tensor) -> Tensor:
        """See `BatchedPlayer`."""
        most, draft = int(counts.max()), self._draft
        if not most:
            return self._tokens[:, :0]
        rows = torch.arange(most + 1, device=context.device)
        ids = torch.full((len(context), most + 1), draft.config.mask_token_id, device=context.device)
        ids[:, 0] = self._tokens.gather(1, context[:, None])[:, 0]
        positions = context[:, None] + rows + self._rules.ahead
        # Every row sees the context and its own text's block; surplus rows are no part of it.
        block = (rows <= counts[:, None])[:, None] | (rows == rows[:, None])
        committed = (self._places < context[:, None])[:, None].expand(-1, most + 1, -1)
        visible = torch.cat((committed, block), dim=2)
        x = draft.target.embedding[ids]
        for number, (weights, known) in enumerate(zip(draft.layers, self._entries, strict=True)):
            normed = draft.normed(x, weights["input_layernorm.weight"])
            q, *own = (draft.heads(normed, number, name, positions) for name in "qkv")
            k, v = (torch.cat(pair, dim=1) for pair in zip(known, own, strict=True))
            x = x + attend(q, k, v, visible) @ weights["self_attn.o_proj.weight"].T
            x = x + mlp(draft.normed(x, weights["post_attention_layernorm.weight"]), weights)
        first = 1 + self._rules.row
        return (draft.normed(x, draft.norm)[:, first : first + most] @ draft.target.lm_head.T).argmax(dim=-1)

    def verified(self, context: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> None:
        """See `BatchedPlayer`: nothing is left behind."""
