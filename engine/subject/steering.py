"""What a script forces on an engine: its drafts in place of those that are proposed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.engine.probes import Probes
from draftproof.engine.stages import DecodeRow, Proposal, relayed
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Scenario, drafts_if_forced, round_plan
from draftproof.properties.values.script import Script, forced


class Steering:
    """Puts the drafts of a script in place of proposals."""

    def __init__(self, scenario: Scenario, script: Script) -> None:
        self._scenario, self._script = scenario, script

    def steered(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        """Return what is to be verified.

        Where nothing is forced the proposal goes on as it is: an engine may know its own tensors, and have put them
        where they are read.
        """
        given = {index: tokens for index, row in enumerate(batch) if (tokens := self._forced(row))}
        if not given:
            return proposal
        known = proposal.num_drafts if proposal.counts is None else proposal.counts.tolist()
        draft_tokens, num_drafts = proposal.draft_tokens.clone(), list(known)
        weights = None if proposal.weights is None else proposal.weights.clone()
        for index, forced_tokens in given.items():
            tokens = forced_tokens[: draft_tokens.shape[1]]
            draft_tokens[index, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64, device=draft_tokens.device)
            num_drafts[index] = len(tokens)
            if weights is not None:
                # Forced drafts were not drawn.
                weights[index] = 0
        parents = self._shaped(proposal.parents, {index: batch[index] for index in given})
        return Proposal(draft_tokens, tuple(num_drafts), parents, weights)

    def _forced(self, row: DecodeRow) -> TokenIds | None:
        """Return the drafts that a row is to verify in place of what is proposed, if the script says any."""
        # A second service goes on counting requests.
        number = row.request.id % len(self._scenario.requests)
        request = self._scenario.requests[number]
        emitted = row.seq_len + 1 - len(request.prompt)
        count = drafts_if_forced(self._scenario, round_plan(request, row.round), row.num_drafts)
        return forced(self._script.requests[number], row.round, emitted, count)

    def _shaped(self, proposed: Tensor | None, rows: Mapping[int, DecodeRow]) -> Tensor | None:
        """Return the parents of a tree's drafts; rows that are forced have the shapes of their plans."""
        if proposed is None:
            return None
        parents = proposed.clone()
        for index, row in rows.items():
            plan = round_plan(self._scenario.requests[row.request.id % len(self._scenario.requests)], row.round)
            if plan.shape:
                own = plan.shape.cut(row.num_drafts, self._scenario.most_drafts(row.num_drafts)).parents
                parents[index, : len(own)] = torch.tensor(own, dtype=torch.int64, device=parents.device)
        return parents


class SilentRecorder(Probes):
    """Steers a run, and records nothing of it."""

    def __init__(self, steering: Steering) -> None:
        super().__init__()
        self._steering, self._known = steering, tuple[DecodeRow, ...]()

    def on_known(self, batch: tuple[DecodeRow, ...], inputs: Mapping[str, Tensor]) -> None:
        """Keep the rows as the device has them: a script is followed by these."""
        self._known = relayed(batch, inputs)

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        """Return the script's drafts in place of the proposals."""
        return self._steering.steered(self._known or batch, proposal)
