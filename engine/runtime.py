"""A runtime: graphs and buffers for one number of steps. One is prebuilt for each count that can ever run, and one for
rounds without drafts; they share the pools, the models and nothing else.

`R` live rows, `K` steps, `W` verify width (K + 1), `D` hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.eagle import Eagle
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Buffers, GraphRunner, Outputs
from draftproof.engine.stages import Acceptance, Proposal
from draftproof.engine.verify import Verifier

ROUND_PADDING = {
    "rows": 0,
    "states": 0,
    "positions": 0,
    "counts": -1,
    "pending": 0,
    "first": 0,
    "drafts": 0,
    "hidden": 0,
}
ACCEPTED_PADDING = {"rows": 0, "positions": 0, "correct": -1, "tokens": 0, "hidden": 0}


class Runtime:
    """Propose, verify and extend at one width. Without steps nothing is proposed."""

    def __init__(self, steps: int, config: EngineConfig, verifier: Verifier, draft: Eagle, probes: Probes) -> None:
        self.steps, self.width = steps, steps + 1
        target = verifier.target
        rows, device = config.most_rows, verifier.cache.table.device

        def ints(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        def states(*shape: int) -> torch.Tensor:
            return torch.zeros((*shape, target.width), dtype=target.hidden_dtype, device=device)

        single = {name: ints(rows) for name in ("rows", "states", "positions", "counts", "pending", "first")}
        self._round = Buffers({**single, "drafts": ints(rows, steps), "hidden": states(rows)}, ROUND_PADDING)
        single = {name: ints(rows) for name in ("rows", "positions", "correct")}
        wide = {"tokens": ints(rows, self.width), "hidden": states(rows, self.width)}
        self._accepted = Buffers({**single, **wide}, ACCEPTED_PADDING)
        sizes = config.sizes
        self._propose = GraphRunner("draft", self.width, draft.propose, self._round, sizes, probes)
        self._verify = GraphRunner("verify", self.width, verifier.verify, self._round, sizes, probes)
        self._extend = GraphRunner("extend", self.width, draft.extend, self._accepted, sizes, probes)
        self._runners = (self._propose, self._verify, self._extend) if steps else (self._verify, self._extend)

    def capture_with(self, backend: Backend, declared: Sequence[torch.Tensor]) -> None:
        """See GraphRunner."""
        for runner in self._runners:
            runner.capture_with(backend, declared)

    def warm_up(self, size: int) -> None:
        """Capture everything of this size."""
        for runner in self._runners:
            runner.prepare(size)

    def propose(self, values: Mapping[str, torch.Tensor], count: int) -> Proposal:
        """Fill the buffers of the round and let the draft propose into them."""
        if self.steps:
            self._propose.prepare(count)
        self._verify.prepare(count)
        nothing = torch.zeros((count, self.steps), dtype=torch.int64, device=values["rows"].device)
        self._round.fill({**values, "drafts": nothing}, count, self._verify.size_for(count))
        return Proposal(self._propose.launch(count)["drafts"] if self.steps else nothing)

    def verify(self, proposal: Proposal, count: int) -> Acceptance:
        """Verify the proposal in the buffers that `propose` filled."""
        self._round.fill({"drafts": proposal.drafts}, count, count)
        out = self._verify.launch(count)
        correct, choice = out["correct"].tolist(), out["choice"].tolist()
        tokens = tuple((*row[:a], bonus) for row, a, bonus in zip(choice, correct, out["bonus"].tolist(), strict=True))
        return Acceptance(out["hidden"], out["choice"], out["correct"], tuple(correct), tokens)

    def extend(self, values: Mapping[str, torch.Tensor], count: int) -> Outputs:
        """Draft entries of what was accepted; the first proposals and states of the next round."""
        self._extend.prepare(count)
        self._accepted.fill(values, count, self._extend.size_for(count))
        return self._extend.launch(count)
