"""The fast simulator: all texts at once, in the dtype of the pair (float32 unless a test asks for another)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.properties.formats.round_log import LoggedText, Prompt
from draftproof.properties.values.drafts import Ngram
from draftproof.reference.audit.accepting import emits
from draftproof.reference.audit.batched import padded
from draftproof.reference.audit.fast_pair import FastPair
from draftproof.reference.audit.mistakes import Mistake
from draftproof.reference.audit.others import LookupPlayer
from draftproof.reference.audit.pair import count_mismatches, own_choices
from draftproof.reference.audit.play import Late, Played, Text, drafts_due, follow, is_idle, judged, play
from draftproof.reference.audit.rules import LookupRules
from draftproof.reference.models.target import TargetPass


class FastSimulator:
    """Plays a draft over what the target decodes after prompts, or over the texts of a log, in its rounds."""

    def __init__(
        self,
        pair: FastPair,
        prompts: Sequence[Prompt] = (),
        log: Sequence[LoggedText] = (),
        *,
        steps: int,
        budget: int = 0,
    ) -> None:
        self._pair, self._steps, self._log = pair, steps, log
        self._budgets = [one.max_tokens or budget for one in prompts]
        texts = [one.tokens for one in log]
        if prompts:
            most = max(self._budgets) + steps + 1
            texts = pair.target.decode([one.prompt for one in prompts], most)
        self.prompts: Sequence[tuple[int, ...]] = tuple(one.prompt for one in log or prompts)
        self._lengths = [len(one) for one in self.prompts]
        self._contexts = [one.context for one in log] or self._lengths
        # Rejected rows, and steps behind them, reach beyond the last token.
        self._texts, longest = texts, max(map(len, texts)) + 2 * steps + 4
        self._tokens = padded(texts, longest, pair.target.device)
        layers = pair.target.config.num_hidden_layers
        kept = set[int]() if isinstance(pair.draft, Ngram) else pair.draft.kept(layers)
        self._whole = pair.target.states(self._tokens, kept)
        self._own = self._choices() if log else texts
        self.other_texts = sum(count_mismatches(*both) for both in zip(texts, self._own, strict=True))

    @property
    def first_tokens(self) -> tuple[int, ...]:
        """Return what each prompt itself emits."""
        return tuple(text[length] for text, length in zip(self._texts, self._lengths, strict=True))

    def play(self, mistake: Mistake) -> Sequence[Sequence[Played]]:
        """Return the rounds of every text."""
        if isinstance(self._pair.draft, Ngram):
            return self._look_up(self._pair.draft, mistake)
        prompts = torch.tensor(self._lengths, device=self._tokens.device)
        player = self._pair.draft.player(self._whole, self._tokens, prompts, mistake.rules)
        contexts, rounds = list(self._contexts), [list[Played]() for _ in self._texts]
        late = [Late(mistake) for _ in self._texts]
        while going := [self._goes_on(at, contexts[at], len(rounds[at])) for at in range(len(contexts))]:
            if not any(going):
                break
            counts = [
                self._count(at, contexts[at], len(rounds[at]), mistake) if on else 0 for at, on in enumerate(going)
            ]
            context, meant = torch.tensor([contexts, counts], device=self._tokens.device)
            proposed = player.propose(context, meant).tolist()
            drafts = [late[at].verifies(tuple(proposed[at][: counts[at]])) if on else () for at, on in enumerate(going)]
            told = [self._played(at, contexts[at], drafts[at], len(rounds[at]), mistake) for at in range(len(counts))]
            ran = [self._ran(at, len(rounds[at]), one) if going[at] else one for at, one in enumerate(told)]
            player.verified(context, *self._tensors(ran))
            for at, on in enumerate(going):
                if on:
                    rounds[at].append(told[at])
                    contexts[at] += ran[at].accepted + 1
        return [tuple(one) for one in rounds]

    def _look_up(self, spec: Ngram, mistake: Mistake) -> Sequence[Sequence[Played]]:
        assert isinstance(mistake.rules, LookupRules)
        nothing = TargetPass(torch.empty(0), torch.empty(0), ())
        known = zip(self._lengths, self._contexts, self._texts, self._own, strict=True)
        texts = [Text(prompt, context, one, nothing, own) for prompt, context, one, own in known]
        players = [LookupPlayer(spec, text, mistake.rules) for text in texts]
        if self._log:
            three = zip(texts, players, self._log, strict=True)
            return [follow(text, player, mistake, one, self._steps) for text, player, one in three]
        both = zip(texts, players, self._budgets, strict=True)
        return [play(text, player, mistake, self._steps, most) for text, player, most in both]

    def _goes_on(self, at: int, context: int, done: int) -> bool:
        if self._log:
            return done < len(self._log[at].rounds)
        return context + 1 < self._lengths[at] + self._budgets[at]

    def _count(self, at: int, context: int, done: int, mistake: Mistake) -> int:
        if is_idle(mistake, done + 1):
            return 0
        if not self._log:
            return self._steps - mistake.fewer
        may_idle = self._log[at].own_count or context + 2 >= len(self._texts[at])
        due = drafts_due(self._log[at].rounds[done], self._steps, may_idle=may_idle)
        return max(0, due - mistake.fewer)

    def _played(self, at: int, context: int, drafts: tuple[int, ...], done: int, mistake: Mistake) -> Played:
        own = self._own[at][context + 1 :]
        if self._log:
            rounds = self._log[at].rounds
            return judged(mistake, context, drafts, rounds[done], own) if done < len(rounds) else Played(context, (), 0)
        emitted = emits(mistake.accepts, drafts, own)
        return Played(context, drafts, len(emitted) - 1, emitted)

    def _ran(self, at: int, done: int, played: Played) -> Played:
        """Return what the round of a log was; without one what was just played."""
        if not self._log:
            return played
        logged = self._log[at].rounds[done]
        drafts = played.drafts if logged.drafts is None else logged.drafts
        return Played(played.context, drafts, len(logged.emitted) - 1)

    def _tensors(self, ran: Sequence[Played]) -> tuple[Tensor, Tensor, Tensor]:
        """Return drafts [B, K], how many, and how many were accepted."""
        device, width = self._tokens.device, max(len(one.drafts) for one in ran)
        drafts = padded([one.drafts for one in ran], width, device).reshape(len(ran), width).long()
        counts, accepted = ([len(one.drafts) for one in ran], [one.accepted for one in ran])
        return drafts, torch.tensor(counts, device=device), torch.tensor(accepted, device=device)

    def _choices(self) -> list[tuple[int, ...]]:
        """Return each text as the target chooses its tokens."""
        hidden, lm_head = self._whole.hidden, self._pair.target.lm_head
        return [
            own_choices(length, text, hidden[at, : len(text)] @ lm_head.T)
            for at, (length, text) in enumerate(zip(self._lengths, self._texts, strict=True))
        ]
