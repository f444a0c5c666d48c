"""Drafts of entries over many texts at once: what `entries.py` says, with keys and values in place of lists.

Keys and values of all right entries are made once; a mistake writes others over them.
Shapes: `R` requests, one a text, `J` positions of a context, `K` drafts of a round, `D` width of the head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.reference.audit.batched import BatchedTarget, attend, heads
from draftproof.reference.audit.batched_heads import BatchedHead
from draftproof.reference.audit.rules import EntryRules
from draftproof.reference.models.target import TargetPass


class BatchedEntries:
    """A draft at work on all texts, round after round."""

    def __init__(
        self,
        head: BatchedHead,
        target: BatchedTarget,
        whole: TargetPass,
        tokens: Tensor,
        prompts: Tensor,
        rules: EntryRules,
    ) -> None:
        self._head, self._target, self._tokens, self._rules = head, target, tokens, rules
        self._states = head.given(whole, rules)
        length, device = tokens.shape[1], tokens.device
        self._texts, places = torch.arange(len(tokens), device=device), torch.arange(length, device=device)
        rows = (places + rules.row).clamp(0, length - 1).expand(len(tokens), length).clone()
        if rules.row > 0:
            rows[self._texts, prompts - 1] = prompts - 1
        self._ids = tokens[:, (places + rules.shift).clamp(max=length - 1)]
        self._inputs = self._states.gather(1, rows[..., None].expand(*rows.shape, self._states.shape[2]))
        self._k, self._v = self._entries(self._ids, self._inputs, places.expand(len(tokens), length))
        self._steps: tuple[Tensor, Tensor] | None = None
        self._after: Tensor | None = None

    def propose(self, context: Tensor, count: int) -> Tensor:
        """Return `count` drafts [R, K] after t_0 .. t_n, n = `context` [R]."""
        last, texts = context - 1, self._texts
        if self._after is not None:
            self._inputs[texts, last] = self._after
            made = self._entries(self._ids[texts, last][:, None], self._after[:, None], last[:, None])
            self._k[texts, last], self._v[texts, last] = (x[:, 0] for x in made)
        token, state, position = self._ids[texts, last], self._inputs[texts, last], last
        g, choice = self._row(token, state, position, last, [], [])
        first, proposed, ks, vs, states, positions = (
            g,
            [choice],
            list[Tensor](),
            list[Tensor](),
            list[Tensor](),
            list[Tensor](),
        )
        by_position, seen = self._rules.slots == "by position" and count > 1, context
        if by_position and self._rules.ahead < 0:
            seen = last
        if by_position and self._rules.ahead > 0:
            ks.append(torch.zeros_like(self._k[:, :1]))
            vs.append(ks[0])
        for step in range(1, count):
            state = first if self._rules.handed == "first step" else g
            position = context + step - 1 + self._rules.ahead
            states.append(state)
            positions.append(position)
            g, choice = self._row(proposed[-1], state, position, seen, ks, vs)
            proposed.append(choice)
        if by_position and self._rules.ahead < 0:
            self._k[texts, last], self._v[texts, last] = ks[0][:, 0], vs[0][:, 0]
        self._steps = (torch.stack(states, dim=1), torch.stack(positions, dim=1)) if states else None
        return torch.stack(proposed, dim=1)

    def verified(self, context: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> None:
        """Leave behind what a round of `drafts` [R, K], of which `counts` [R] were verified, leaves of entries."""
        end, left = context + accepted, self._rules.left
        if left == "hole after full accept":
            hole = (counts > 0) & (accepted == counts)
            self._k[self._texts[hole], end[hole]] = 0
            self._v[self._texts[hole], end[hole]] = 0
        if left in ("entry of rejected", "entries of steps") and self._steps is not None:
            states, positions = self._steps
            width = min(states.shape[1], drafts.shape[1])
            k, v = self._entries(drafts[:, :width], states[:, :width], positions[:, :width])
            ran = (counts - 1).clamp(min=0)
            for place in range(width):
                wrong = (accepted == place) if left == "entry of rejected" else (accepted > place)
                these = self._texts[wrong & (place < ran)]
                self._k[these, context[these] + place] = k[these, place]
                self._v[these, context[these] + place] = v[these, place]
        if self._rules.row > 0:
            self._after = self._state_after(end, drafts, counts, accepted)

    def _row(
        self, token: Tensor, state: Tensor, position: Tensor, seen: Tensor, ks: list[Tensor], vs: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Run one entry a text after those below `seen` [R] and the steps so far; return its state and choice [R]."""
        x, added = self._head.inputs(token[:, None], state[:, None], self._rules)
        made = heads(x, self._head.layer, self._head.config, position[:, None])
        ks.append(made.k)
        vs.append(made.v)
        known = torch.arange(self._k.shape[1], device=seen.device) < seen[:, None]
        visible = torch.cat((known, known.new_ones(len(known), len(ks))), dim=1)[:, None]
        attended = attend(made.q, torch.cat((self._k, *ks), dim=1), torch.cat((self._v, *vs), dim=1), visible)
        g, logits = self._head.outputs(added, attended)
        choice = logits[:, 0].argmax(dim=-1)
        mapped = self._head.ids is not None and self._rules.mapped
        return g[:, 0], self._head.ids[choice] if mapped and self._head.ids is not None else choice

    def _entries(self, tokens: Tensor, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        x, _ = self._head.inputs(tokens, states, self._rules)
        made = heads(x, self._head.layer, self._head.config, positions)
        return made.k, made.v

    def _state_after(self, end: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> Tensor:
        own = self._states[self._texts, end]
        if not drafts.shape[1]:
            return own
        rejected = drafts[self._texts, accepted.clamp(max=drafts.shape[1] - 1)]
        beyond = (end + 1).clamp(max=self._tokens.shape[1] - 1)
        kept = self._head.kept(self._target.config.num_hidden_layers)
        other = self._head.given(self._target.rows_instead(rejected, beyond, kept), self._rules)[:, 0]
        return torch.where((accepted < counts)[:, None], other, own)
