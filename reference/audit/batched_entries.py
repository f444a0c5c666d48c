"""Drafts of entries over many texts at once: what `entries.py` says, with keys and values in place of lists.

Keys and values of all right entries are made once; a mistake writes others over them.
Shapes: `R` requests, one a text, `J` positions of a context, `K` drafts of a round, `D` width of the head, `S` slots
from a round's last entry on, `N` key-value heads, `H` head size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from draftproof.reference.audit.batched import BatchedTarget
from draftproof.reference.audit.batched_attention import attend
from draftproof.reference.audit.batched_heads import BatchedHead
from draftproof.reference.audit.rules import EntryRules
from draftproof.reference.models.target import TargetPass


class Window(NamedTuple):
    """Keys and values [R, S, N, H] of the slots from the last entry on, and which of them are seen [R, S]."""

    k: Tensor
    v: Tensor
    seen: Tensor


class EntryDraft(NamedTuple):
    """A head on a target."""

    head: BatchedHead
    target: BatchedTarget

    def kept(self, layers: int) -> set[int]:
        """See `BatchedDraft`."""
        return self.head.kept(layers)

    def player(self, whole: TargetPass, tokens: Tensor, prompts: Tensor, rules: EntryRules) -> BatchedEntries:
        """See `BatchedDraft`."""
        return BatchedEntries(self.head, self.target, whole, tokens, prompts, rules)


class BatchedEntries:
    """A draft at work on all texts, round after round; see `BatchedPlayer`."""

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
        self._texts, self._places = torch.arange(len(tokens), device=device), torch.arange(length, device=device)
        rows = (self._places + rules.row).clamp(0, length - 1).expand(len(tokens), length).clone()
        if rules.row > 0:
            rows[self._texts, prompts - 1] = prompts - 1
        self._ids = tokens[:, (self._places + rules.shift).clamp(max=length - 1)]
        self._inputs = self._states.gather(1, rows[..., None].expand(*rows.shape, self._states.shape[2]))
        self._k, self._v = self._entries(self._ids, self._inputs, self._places.expand(len(tokens), length))
        if rules.reads_beyond:
            self._beyond_k, self._beyond_v = torch.zeros_like(self._k), torch.zeros_like(self._v)
        self._steps: tuple[Tensor, Tensor] | None = None
        self._unwritten = torch.zeros_like(prompts, dtype=torch.bool)
        self._rejected = torch.zeros_like(prompts)

    def propose(self, context: Tensor, counts: Tensor) -> Tensor:
        """Return drafts [R, K] after t_0 .. t_n, n = `context` [R]; `counts` [R] of them are meant."""
        last, texts, rules = context - 1, self._texts, self._rules
        most = max(1, int(counts.max()))
        token, given = self._ids[texts, last], self._inputs[texts, last]
        g, choice = self._row(token, given, last, last, self._own)
        states, positions, proposed, first = list[Tensor](), list[Tensor](), [choice], g
        window = self._window(last, most)
        for step in range(1, most):
            state = {"first step": first, "target's": given}.get(rules.handed, g)
            position = context + rules.offset(step)
            states.append(state)
            positions.append(position)
            slot, seen = rules.slot(step), self._seen(window, step)

            def written(k: Tensor, v: Tensor, slot: int = slot, step: int = step, seen: Tensor = seen) -> Window:
                runs = (step < counts)[:, None, None]
                window.k[:, slot] = torch.where(runs, k[:, 0], window.k[:, slot])
                window.v[:, slot] = torch.where(runs, v[:, 0], window.v[:, slot])
                return window._replace(seen=seen)

            g, choice = self._row(proposed[-1], state, position, last, written)
            proposed.append(choice)
        if rules.reads_beyond:
            self._keep(window, last)
        self._steps = (torch.stack(states, dim=1), torch.stack(positions, dim=1)) if states else None
        return torch.stack(proposed, dim=1)

    def verified(self, context: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> None:
        """Leave behind the entries that a round of `drafts` [R, K] leaves, with `counts` [R] of them verified."""
        end, left, texts = context + accepted, self._rules.left, self._texts
        full = (counts > 0) & (accepted == counts)
        if left in ("hole after full accept", "unwritten after full accept"):
            self._k[texts[full], end[full]] = 0
            self._v[texts[full], end[full]] = 0
        self._unwritten = full & (left == "unwritten after full accept")
        if left in ("entry of rejected", "entries of steps") and self._steps is not None:
            states, positions = self._steps
            width = min(states.shape[1], drafts.shape[1])
            k, v = self._entries(drafts[:, :width], states[:, :width], positions[:, :width])
            ran = (counts - 1).clamp(min=0)
            for place in range(width):
                wrong = (accepted == place) if left == "entry of rejected" else (accepted > place)
                these = texts[wrong & (place < ran)]
                self._k[these, context[these] + place] = k[these, place]
                self._v[these, context[these] + place] = v[these, place]
        self._rejected = counts - accepted
        if self._rules.reads_beyond and drafts.shape[1]:
            self._extend_rejected(context, drafts, counts, accepted)
        self._change_last(context, end, drafts, counts, accepted)

    def _window(self, last: Tensor, most: int) -> Window:
        """Return what stands in the slots from the last entry on before a round's steps."""
        texts, rules = self._texts, self._rules
        width = most
        if rules.reads_beyond:
            width = most + 1 + int(self._rejected.max())
        k, v = (x.new_zeros(len(x), width, *x.shape[2:]) for x in (self._k, self._v))
        if rules.reads_beyond:
            slots = last[:, None] + torch.arange(width, device=last.device)
            k, v = (x[texts[:, None], slots].clone() for x in (self._beyond_k, self._beyond_v))
        k[:, 0], v[:, 0] = self._k[texts, last], self._v[texts, last]
        return Window(k, v, last[:, None])

    def _seen(self, window: Window, step: int) -> Tensor:
        """Return which slots of the window a step sees: by definition those up to its own."""
        more = self._rejected if self._rules.rejected_seen else torch.zeros_like(self._rejected)
        return torch.arange(window.k.shape[1], device=more.device) <= step + more[:, None]

    def _keep(self, window: Window, last: Tensor) -> None:
        texts, width = self._texts, window.k.shape[1]
        slots = last[:, None] + torch.arange(width, device=last.device)
        self._beyond_k[texts[:, None], slots], self._beyond_v[texts[:, None], slots] = window.k, window.v
        self._k[texts, last], self._v[texts, last] = window.k[:, 0], window.v[:, 0]

    def _own(self, k: Tensor, v: Tensor) -> Window:
        """Return the last entry alone, as it sees itself."""
        unwritten = self._unwritten[:, None, None, None]
        seen = torch.ones(len(k), 1, dtype=torch.bool, device=k.device)
        return Window(k.masked_fill(unwritten, 0), v.masked_fill(unwritten, 0), seen)

    def _row(
        self,
        token: Tensor,
        state: Tensor,
        position: Tensor,
        last: Tensor,
        written: Callable[[Tensor, Tensor], Window],
    ) -> tuple[Tensor, Tensor]:
        """Run one entry a text, which sees those below `last` [R] and the window that `written` makes of its own.

        Return its state and choice [R].
        """
        x, added = self._head.inputs(token[:, None], state[:, None], self._rules, position[:, None])
        made = self._head.heads(x, position[:, None])
        window = written(made.k, made.v)
        known = self._places < last[:, None]
        visible = torch.cat((known, window.seen), dim=1)[:, None]
        attended = attend(made.q, torch.cat((self._k, window.k), dim=1), torch.cat((self._v, window.v), dim=1), visible)
        g, logits = self._head.outputs(x, added, attended, self._rules)
        choice = logits[:, 0].argmax(dim=-1)
        mapped = self._head.ids is not None and self._rules.mapped
        return g[:, 0], self._head.ids[choice] if mapped and self._head.ids is not None else choice

    def _entries(self, tokens: Tensor, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        x, _ = self._head.inputs(tokens, states, self._rules, positions)
        made = self._head.heads(x, positions)
        return made.k, made.v

    def _change_last(self, context: Tensor, end: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> None:
        """Make the last entry of a round another one, for good, where the rules say so."""
        texts, rules = self._texts, self._rules
        if rules.row > 0:
            self._inputs[texts, end] = self._state_after(context, end, drafts, counts, accepted)
        elif rules.last == "first emitted":
            self._ids[texts, end] = self._tokens[texts, context + 1]
        elif rules.last == "last draft after full accept":
            full = (counts > 0) & (accepted == counts)
            self._ids[texts[full], end[full]] = self._tokens[texts[full], end[full]]
        else:
            return
        k, v = self._entries(self._ids[texts, end][:, None], self._inputs[texts, end][:, None], end[:, None])
        self._k[texts, end], self._v[texts, end] = k[:, 0], v[:, 0]

    def _of_drafts(self, context: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states [R, K, D] that the rows of drafts have in a verify, and their positions [R, K]."""
        positions = context[:, None] + torch.arange(1, drafts.shape[1] + 1, device=context.device)
        kept = self._head.kept(self._target.config.num_hidden_layers)
        return self._head.given(self._target.rows_instead(drafts, positions, kept), self._rules), positions

    def _extend_rejected(self, context: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> None:
        """Write the entries of rejected rows behind the context, as `EntryPlayer` does."""
        states, positions = self._of_drafts(context, drafts)
        rows = torch.arange(1, drafts.shape[1] + 1, device=context.device)
        following = torch.minimum(rows, (counts - 1).clamp(min=0)[:, None])
        k, v = self._entries(drafts.gather(1, following), states, positions)
        texts, columns = ((accepted[:, None] < rows) & (rows <= counts[:, None])).nonzero(as_tuple=True)
        slots = positions[texts, columns]
        self._beyond_k[texts, slots], self._beyond_v[texts, slots] = k[texts, columns], v[texts, columns]

    def _state_after(self, context: Tensor, end: Tensor, drafts: Tensor, counts: Tensor, accepted: Tensor) -> Tensor:
        own = self._states[self._texts, end]
        if not drafts.shape[1]:
            return own
        states, _ = self._of_drafts(context, drafts)
        rejected = states[self._texts, accepted.clamp(max=drafts.shape[1] - 1)]
        return torch.where((accepted < counts)[:, None], rejected, own)
