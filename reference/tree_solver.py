"""The script of one request with trees of drafts (S-TREE-10)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, round_plan
from draftproof.properties.values.script import RoundScript
from draftproof.properties.values.tree import TreeShape, chain, depths, lineage
from draftproof.reference.choose import best
from draftproof.reference.decode import likeliest
from draftproof.reference.drafts.base import ReferenceDraft, propose
from draftproof.reference.protocols import ReferenceTarget, last_logits
from draftproof.reference.request_solver import RequestSolver
from draftproof.reference.trees import verify_tree


class TreeSolver(RequestSolver):
    """As `RequestSolver`; what is forced for a round of depth d are the tokens of its shape, row by row."""

    def __init__(
        self,
        scenario: Scenario,
        request: Request,
        target: ReferenceTarget,
        draft: ReferenceDraft,
        parents: Mapping[int, TokenIds],
    ) -> None:
        """`parents` are the parents of the drafts that a subject verified, by its round."""
        super().__init__(scenario, request, target, draft)
        self._parents = parents

    def _longest(self, emitted: int, plan: RoundPlan) -> int:
        return self._fitting(plan.num_drafts, emitted)

    def _round(
        self, number: int, emitted: TokenIds, count: int, chain: TokenIds | None, reported: TokenIds | None = None
    ) -> RoundScript:
        tokens = self._request.prompt + emitted
        if chain is None:
            own = propose(self._draft, self._target, tokens, count)
            asked, parents = own.tokens, own.parents
        else:
            shape = self._shape(round_plan(self._request, number), count)
            asked, parents = chain, shape.parents if shape else ()
        drafts, rows = asked, parents
        if reported is not None and self._can_run_tree(tokens, reported, self._parents.get(number, ())):
            drafts, rows = reported, self._parents.get(number, ())
        verified = verify_tree(self._target, tokens, drafts, rows, self._followed, self._request.sampling)
        return RoundScript(
            context=len(tokens) - 1,
            drafts=len(asked),
            forced=chain,
            correct_len=verified.correct_len,
            emitted=self._limits.cut(emitted, verified.emitted),
            verified=None if (drafts, rows) == (asked, parents) else drafts,
            parents=rows,
            depth=count,
        )

    def _asked(self, emitted: TokenIds, count: int, plan: RoundPlan) -> TokenIds | None:
        sampling, shape = self._request.sampling, self._shape(plan, count)
        if sampling is None or plan.num_correct < 0 or shape is None:
            return self._chain(len(emitted), count, plan)
        drafts: list[int] = []
        for row, parent in enumerate(shape.parents, start=1):
            before = self._request.prompt + emitted + tuple(drafts[at - 1] for at in lineage(shape.parents, parent))
            known = tuple(drafts[at - 1] for at in range(1, row) if shape.parents[at - 1] == parent)
            right, wrong = likeliest(self._target, before, sampling, partial(self._kinds, plan.wrong), known)
            drafts.append(right if self._is_right(shape, row, bool(known)) else wrong)
        return tuple(drafts)

    @staticmethod
    def _is_right(shape: TreeShape, row: int, has_sibling: bool) -> bool:
        """Whether a row has what its parent chooses: of the path, or a trap, the first below a wrong row."""
        parent = shape.parents[row - 1]
        return row in shape.path or (parent > 0 and parent not in shape.path and not has_sibling)

    def _can_run_tree(self, tokens: TokenIds, drafts: TokenIds, parents: TokenIds) -> bool:
        """Whether the drafts are a tree, and the target has a row for each."""
        if len(parents) != len(drafts) or not all(0 <= at < row for row, at in enumerate(parents, start=1)):
            return False
        return self._can_run(tokens, drafts, max(depths(parents)))

    def _shape(self, plan: RoundPlan, depth: int) -> TreeShape | None:
        """Return the part of a plan's shape that a round of this depth verifies."""
        return plan.shape.cut(depth, self._scenario.most_drafts(depth)) if plan.shape and depth else None

    def _chain(self, emitted: int, count: int, plan: RoundPlan) -> TokenIds | None:
        """Return the tokens of the plan's shape after `emitted` ones, for a round of depth `count`.

        None: nothing is forced.

        Rows of the path are right; of any others the first is a trap below a wrong row, and wrong anywhere else.
        """
        if plan.num_correct < 0:
            return None
        shape = self._shape(plan, count)
        if plan.shape is None or shape is None:
            return ()
        if plan.shape.parents == chain(len(plan.shape.parents)):
            return super()._chain(emitted, len(shape.parents), replace(plan, num_correct=len(shape.path)))
        tokens = self._request.prompt + self._truth.first(emitted)
        drafts: list[int] = []
        choices: dict[int, int] = {}
        for row, parent in enumerate(shape.parents, start=1):
            if parent not in choices:
                before = tokens + tuple(drafts[at - 1] for at in lineage(shape.parents, parent))
                choices[parent] = best(last_logits(self._target, before))
            choice = choices[parent]
            known = {drafts[at - 1] for at in range(1, row) if shape.parents[at - 1] == parent}
            if self._is_right(shape, row, bool(known)):
                drafts.append(choice)
                continue
            token = self._kinds(plan.wrong, choice)
            while token in {choice, *known}:
                token = (token + 1) % self._scenario.model.vocab
            drafts.append(token)
        return tuple(drafts)
