"""A runtime: graphs and buffers for one number of steps.

One is prebuilt for each count that can ever run, and one for rounds without drafts; they share pools and models only.

`R` live rows, `K` steps, `W` verify width (K + 1), `D` width of what the draft takes of the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Accepted, Draft, Shapes
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.logprobs import WEIGHTS
from draftproof.engine.penalty_params import PENALTY_INPUTS
from draftproof.engine.probes import Probes
from draftproof.engine.ranks import SOLO, Solo
from draftproof.engine.runner import Buffers, GraphRunner, Outputs, copy_all
from draftproof.engine.sampling import SAMPLING_INPUTS
from draftproof.engine.stages import Acceptance, Commit, DecodeRow, HostDrafts, Proposal
from draftproof.engine.upload import Columns, UploadBlock
from draftproof.engine.verify import Verifier

ROUND = ("req_rows", "state_slots", "positions", "num_drafts", "pending_tokens")
PADDING = {"num_drafts": -1, "correct_len": -1, "last": -1, "above": -1}
"""What rows of padding hold, where it is not zero: none of their tokens belongs anywhere."""
FILLED_ON_DEVICE = ("draft_weights", "excluded")
"""The buffers of a round that no host fills: they have a number for each token of the vocabulary."""
DRAFT_BUFFERS = ("draft_tokens", "parents", *FILLED_ON_DEVICE)
"""The buffers of a round that are empty until drafts are proposed, unless the host knows them before."""


class Runtime:
    """Propose, verify and extend at one width. Without steps nothing is proposed."""

    def __init__(
        self, steps: int, config: EngineConfig, verifier: Verifier, draft: Draft, probes: Probes, group: Solo = SOLO
    ) -> None:
        self.steps, self.width = steps, config.num_drafts(steps) + 1
        self._draft, self._config = draft, config
        rows, device, sizes = config.most_rows, verifier.cache.page_table.device, config.sizes
        ints: Shapes = dict.fromkeys(ROUND, ((), torch.int64))
        inputs = {**ints, "draft_tokens": ((self.width - 1,), torch.int64)}
        if config.tree:
            inputs["parents"] = ((self.width - 1,), torch.int64)
        if config.drafts_sampled:
            inputs["draft_weights"] = ((self.width - 1, verifier.target.vocab), torch.int64)
        if config.sampled:
            inputs |= {name: ((), dtype) for name, dtype in SAMPLING_INPUTS.items()}
        if config.penalized:
            inputs |= dict.fromkeys(PENALTY_INPUTS, ((), torch.int64))
        if config.constrained:
            inputs["excluded"] = ((self.width, verifier.target.vocab), torch.bool)
        large = {name: inputs.pop(name) for name in FILLED_ON_DEVICE if name in inputs}
        self._round = padded_buffers(large, rows, device, UploadBlock(inputs, rows, device))
        self._accepted = padded_buffers(draft.extend_inputs(self.width), rows, device)
        self._propose = None
        if steps and draft.proposer:
            self._propose = GraphRunner("draft", self.width, draft.proposer, self._round, sizes, probes, group=group)
        self._verify = GraphRunner("verify", self.width, verifier.verify, self._round, sizes, probes, group=group)
        self._extends = tuple(
            GraphRunner("extend", self.width, extend, self._accepted, sizes, probes, layer, group)
            for layer, extend in enumerate(draft.extenders)
        )
        self._before = (self._propose, self._verify) if self._propose else (self._verify,)

    def capture_with(self, backend: Backend, declared: Sequence[Tensor]) -> None:
        """See GraphRunner."""
        for runner in (*self._before, *self._extends):
            runner.capture_with(backend, declared)

    def dtypes(self) -> tuple[tuple[str, torch.dtype], ...]:
        """Return the dtypes of its buffers, by name."""
        return (*self._round.dtypes(), *self._accepted.dtypes())

    def warm_up(self, size: int) -> None:
        """Capture everything of this size."""
        for runner in (*self._before, *self._extends):
            runner.prepare(size)

    def begin(self, columns: Columns, num_rows: int) -> None:
        """Fill the buffers of a round for launches that hold `num_rows`; drafts that are not given are empty."""
        size = self._prepared(num_rows)
        self._round.tell(columns, size)
        self._round.pad(size, FILLED_ON_DEVICE)

    def begin_from(self, values: Mapping[str, Tensor], count: int, num_rows: int) -> None:
        """Fill the buffers of a round from values that are on the device, for launches that hold `num_rows` rows."""
        size = self._prepared(num_rows)
        self._round.fill(values, count, size)
        self._round.pad(size, [name for name in DRAFT_BUFFERS if name not in values])

    def _prepared(self, num_rows: int) -> int:
        for runner in self._before:
            runner.prepare(num_rows)
        return self._verify.size_for(num_rows)

    def inputs(self, count: int, num_rows: int) -> Mapping[str, Tensor]:
        """Return the buffers of the rows of a round: what `begin` filled in, until the next one."""
        return self._round.live(count, self._verify.size_for(num_rows))

    def propose(self, batch: tuple[DecodeRow, ...], num_rows: int, found: HostDrafts | None = None) -> Proposal:
        """Return the proposal for the round that `begin` filled in, with what was `found` on the host if anything.

        What is not an output of the draft's graph, it has left in the buffers.
        """
        proposed = self.inputs(len(batch), num_rows)
        if self._draft.proposer is None and found is None:
            return self._draft.propose(batch, proposed["req_rows"], self.steps)
        if found is None:
            num_drafts = tuple([self._config.num_drafts(row.num_drafts) for row in batch])
        else:
            num_drafts = found.num_drafts
        if self._propose:
            proposed = {**proposed, **self._propose.launch(len(batch), num_rows)}
        return Proposal(proposed["draft_tokens"], num_drafts, proposed.get("parents"), proposed.get("draft_weights"))

    def verify(self, proposal: Proposal, count: int, num_rows: int) -> Outputs:
        """Verify the proposal in the buffers that `begin` filled; return the outputs, without waiting for them."""
        num_drafts, there = proposal.counts, self.inputs(count, num_rows)
        if num_drafts is None:
            num_drafts = torch.tensor(proposal.num_drafts, dtype=torch.int64, device=proposal.draft_tokens.device)
        drafts = {"draft_tokens": proposal.draft_tokens, "num_drafts": num_drafts}
        if proposal.parents is not None:
            drafts["parents"] = proposal.parents
        if proposal.weights is not None:
            drafts["draft_weights"] = proposal.weights
        if proposal.excluded is not None:
            drafts["excluded"] = proposal.excluded
        fresh = {name: one for name, one in drafts.items() if one is not there[name]}
        copy_all({name: there[name] for name in fresh}, fresh)
        return self._verify.launch(count, num_rows)

    def extend(self, accepted: Accepted, num_rows: int) -> None:
        """Write the draft's entries of what was accepted, and save what the next round starts from."""
        count = len(accepted.requests)
        for runner in self._extends:
            runner.prepare(num_rows)
        if self._extends:
            self._accepted.fill(self._draft.extend_values(accepted), count, self._extends[0].size_for(num_rows))
        self._draft.save_next_round(accepted, tuple(runner.launch(count, num_rows) for runner in self._extends))


def downloaded_acceptance(out: Outputs) -> Acceptance:
    """Return what the outputs of a verify say."""
    # One download of all that the host looks at.
    width = out["ids"].shape[1]
    ends = (out["correct_len"][:, None], out["bonus"][:, None])
    told = torch.cat([*ends, out["target_tokens"], out["accept_index"]], dim=1).tolist()
    tokens = tuple([(*row[2 : 2 + row[0]], row[1]) for row in told])
    return Acceptance(
        out["ids"],
        out.get("hidden_states"),
        out["target_tokens"],
        out["correct_len"],
        {name: out[name] for name in WEIGHTS if name in out},
        tuple([row[0] for row in told]),
        tokens,
        [row[2 + width :] for row in told],
        out.get("steps"),
    )


def last_committed(acceptance: Acceptance, commits: Sequence[Commit]) -> Tensor:
    """Return the place of the last token of each row that counts, among those that were accepted.

    The device knows it, unless a request has ended before the last of them.
    """
    gained = [len(commit.emitted) for commit in commits]
    if gained == [len(tokens) for tokens in acceptance.tokens]:
        return acceptance.correct_len
    return torch.tensor(gained, dtype=torch.int64, device=acceptance.correct_len.device) - 1


def accepted(
    batch: Sequence[DecodeRow],
    inputs: Mapping[str, Tensor],
    acceptance: Acceptance,
    commits: Sequence[Commit],
    unfinished: Sequence[int],
) -> Accepted:
    """Return the rows of unfinished requests, as the draft is extended by them; mostly these are all of a batch."""
    whole = Accepted(
        requests=tuple([batch[i].request.id for i in unfinished]),
        req_rows=inputs["req_rows"],
        seq_lens=inputs["positions"],
        correct_len=acceptance.correct_len,
        ids=acceptance.ids,
        target_tokens=acceptance.target_tokens,
        hidden_states=acceptance.hidden_states,
        tokens=tuple([commits[i].emitted for i in unfinished]),
    )
    if len(unfinished) == len(batch):
        return whole
    rows = torch.tensor(unfinished, dtype=torch.int64, device=acceptance.ids.device)
    return replace(
        whole,
        req_rows=whole.req_rows[rows],
        seq_lens=whole.seq_lens[rows],
        correct_len=whole.correct_len[rows],
        ids=whole.ids[rows],
        target_tokens=whole.target_tokens[rows],
        hidden_states=None if whole.hidden_states is None else whole.hidden_states[rows],
    )


def padded_buffers(inputs: Shapes, rows: int, device: torch.device, block: UploadBlock | None = None) -> Buffers:
    """Return buffers of `rows` rows with these shapes, beside the buffers of a block."""
    tensors = {name: torch.zeros((rows, *shape), dtype=dtype, device=device) for name, (shape, dtype) in inputs.items()}
    names = (*inputs, *(name for name, _ in block.dtypes())) if block else inputs
    return Buffers(tensors, {name: PADDING.get(name, 0) for name in names}, block)
