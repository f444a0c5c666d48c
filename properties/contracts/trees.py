"""Draft trees: what was proposed and verified, and the walk, also by the subject's own report alone.

`tree.steered` and `tree.walked` read no reference, and of the script stop tokens only. n is the context length of a
round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from draftproof.properties.contracts.base import Contract, equals, listed
from draftproof.properties.contracts.steering import goes_another_way
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.limits import num_accepted
from draftproof.properties.values.observed import StepsInForce, TokenIds
from draftproof.properties.values.relations import Different, Missing, off_by
from draftproof.properties.values.scenario import RoundPlan, drafts_allowed, round_plan
from draftproof.properties.values.trace import Key
from draftproof.properties.values.tree import TreeShape, chain, children, depths


class _Verified(NamedTuple):
    """A round as a subject reports it: the rows that it verified, and the tokens that it emitted after `done`."""

    key: Key
    ids: TokenIds
    parents: TokenIds
    choices: TokenIds
    emitted: TokenIds
    done: int

    @property
    def drafts(self) -> TokenIds:
        return self.ids[1:]

    def row(self, row: int) -> Key:
        """Return where a row was verified."""
        return self.key._replace(row=row)


def _rounds(evidence: Evidence) -> Iterator[_Verified]:
    """Yield every round with complete rows, parents and choices."""
    subject = evidence.subject
    rows: dict[str, dict[Key, dict[int, int]]] = {}
    for channel, values in (
        ("ids", subject.typed("verify.ids", int)),
        ("parents", subject.typed("verify.parents", int)),
        ("choices", {key: choice[0] for key, choice in subject.choices("verify.choice").items()}),
    ):
        rows[channel] = defaultdict(dict)
        for key, value in values.items():
            rows[channel][Key(key.request, key.round)][key.row] = value
    done: dict[int, int] = defaultdict(int)
    emitted = subject.typed("accept.emitted", TokenIds)
    for key in sorted(emitted):
        count = len(rows["ids"][key])
        whole = (rows["ids"][key].keys(), rows["choices"][key].keys(), {0, *rows["parents"][key]})
        if key.round and all(set(one) == set(range(count)) for one in whole):
            ids, parents, choices = (
                tuple(value for _, value in sorted(rows[channel][key].items()))
                for channel in ("ids", "parents", "choices")
            )
            yield _Verified(key, ids, parents, choices, emitted[key], done[key.request])
        done[key.request] += len(emitted[key])


def _depth(evidence: Evidence, one: _Verified, plan: RoundPlan) -> int:
    """Return the depth that a round may have (S-LIMIT-4), with the steps in force that the subject reports.

    Where others may take its drafts away it has none if it verified none.
    """
    if evidence.scenario.dynamic and not one.drafts:
        return 0
    request, most = evidence.scenario.requests[one.key.request], evidence.scenario.memory.max_len
    context = len(request.prompt) + one.done - 1
    left, step = request.budget - one.done, evidence.schedule.steps.get(one.key[:2], -1)
    told = evidence.subject.typed("adaptive_steps.steps", StepsInForce).get(Key(-1, step))
    wanted = min(plan.num_drafts, (told or evidence.scenario).steps)
    return drafts_allowed(wanted, context=context, max_len=most, budget_left=left)


def _steered(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield rows that are not those asked for: of the plan's shape where drafts are forced, else as proposed."""
    told, correct_len = (
        evidence.subject.typed("round.parents", tuple),
        evidence.subject.typed("accept.correct_len", int),
    )
    for one in _rounds(evidence):
        if goes_another_way(evidence, one.key, range(len(one.ids))):
            continue
        plan = round_plan(evidence.scenario.requests[one.key.request], one.key.round)
        depth = _depth(evidence, one, plan)
        most = evidence.scenario.most_drafts(depth)
        shape = plan.shape.cut(depth, most) if plan.shape and depth else None
        proposed = evidence.subject.typed("propose.parents", tuple).get(one.key)
        parents = shape.parents if shape else proposed
        for channel, got in (("verify.parents", one.parents), ("round.parents", told.get(one.key))):
            if got != parents:
                yield Mismatch(
                    channel, one.key if channel == "round.parents" else one.row(1), parents, got, Different()
                )
        # Of a sampled request only the script knows what is right, as of a chain: `draft.verified` holds it to that.
        is_drawn = evidence.scenario.requests[one.key.request].sampling is not None
        if shape and one.parents == shape.parents and not is_drawn:
            yield from _forced(evidence, one, plan, shape)
            right = num_accepted(len(shape.path), len(one.emitted), evidence.limits)
            accepted = correct_len.get(one.key, right)
            if accepted != right:
                yield Mismatch("accept.correct_len", one.key, right, accepted, off_by(right, accepted))
        elif not shape:
            tokens = evidence.subject.typed("propose.tokens", TokenIds).get(one.key)
            # A draft that looks for matches may find fewer.
            may_be_fewer = evidence.form.proposes == "lookup"
            if len(one.drafts) > most or (len(one.drafts) < most and not may_be_fewer):
                near = off_by(most, len(one.drafts))
                yield Mismatch("verify.ids", one.row(1), f"{most} drafts", f"{len(one.drafts)} drafts", near)
            if tokens is not None and tokens != one.drafts:
                yield Mismatch("verify.ids", one.row(1), tokens, one.drafts, Different())


def _forced(evidence: Evidence, one: _Verified, plan: RoundPlan, shape: TreeShape) -> Iterator[Mismatch]:
    """Yield rows that have not the tokens of S-TREE-10: right ones, traps below wrong ones, others that are wrong."""
    vocab, stops = evidence.scenario.model.vocab, evidence.script.requests[one.key.request].stop
    # Where the shape is a chain the rows behind the first trap are what plain decoding says (S-PLAN-3).
    is_chain = plan.shape is not None and plan.shape.parents == chain(len(plan.shape.parents))
    known = len(shape.path) + 2 if is_chain else len(shape.parents)
    for row, parent in enumerate(shape.parents[:known], start=1):
        choice, got = one.choices[parent], one.ids[row]
        before = [one.ids[at] for at in children(shape.parents, parent) if at < row]
        is_trap = parent > 0 and parent not in shape.path and not before
        if row in shape.path or is_trap:
            asked = choice
        else:
            kinds = {
                "zero": 0,
                "last": vocab - 1,
                "far": (choice + vocab // 2) % vocab,
                "stop": min(stops, default=choice),
            }
            asked = kinds.get(plan.wrong, choice)
            asked = asked if asked != choice else (choice + 1) % vocab
            while asked in (choice, *before):
                asked = (asked + 1) % vocab
        if got != asked:
            yield Mismatch("verify.ids", one.row(row), asked, got, Different())


def _walked(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield rows that are no tree, walks that are not what the rows and choices say, and what is emitted otherwise."""
    positions, index = evidence.subject.typed("verify.positions", int), evidence.subject.typed("accept.index", tuple)
    for one in _rounds(evidence):
        tree, parents = range(len(one.parents)), one.parents
        if not all(0 <= parents[row] <= row for row in tree):
            yield Mismatch("verify.parents", one.row(1), "rows before the row itself", parents, Different())
            continue
        n = len(evidence.scenario.requests[one.key.request].prompt) + one.done - 1
        for row, depth in enumerate(depths(parents)):
            got = positions.get(one.row(row))
            if got != n + depth:
                relation = Missing() if got is None else off_by(n + depth, got)
                yield Mismatch("verify.positions", one.row(row), n + depth, got, relation)
            tokens = [one.ids[child] for child in children(parents, row)]
            if len(set(tokens)) != len(tokens):
                yield Mismatch("verify.ids", one.row(row), "distinct tokens below a row", tuple(tokens), Different())
        walk = [0]
        while child := next((at for at in children(parents, walk[-1]) if one.ids[at] == one.choices[walk[-1]]), 0):
            walk.append(child)
        if index.get(one.key) != tuple(walk):
            yield Mismatch("accept.index", one.key, tuple(walk), index.get(one.key), Different())
        chosen = tuple(one.choices[row] for row in walk)
        if one.emitted != chosen[: len(one.emitted)]:
            yield Mismatch("accept.emitted", one.key, chosen, one.emitted, Different())


def _is_tree(evidence: Evidence) -> bool:
    return evidence.scenario.tree is not None


def _beam(name: str, cites: str, **rest: str) -> Contract:
    return equals(f"beam.{name}", f"draft.beam.{rest.pop('channel', name)}", cites=cites, minimum="beams")


_STEERED = ("verify.ids", "verify.parents", "round.parents", "propose.parents")
_WALKED = ("verify.ids", "verify.parents", "verify.choice", "verify.positions", "accept.index", "accept.emitted")
_WALKS = "trees_rejected trees_off_first_branch trees_ended_at_leaf trees_ended_inside"
_FOUND = "matches_branched matches_merged matches_of_all_nodes later_match_accepted"
_SAMPLED = "sampled_siblings_after_elder sampled_tree_residuals sampled_trees_rejected"
_CUT = "trees_of_their_own trees_cut trees_cut_by_nodes"
CONTRACTS = (
    _beam("positions", "S-TREE-3"),
    _beam("ids", "S-TREE-2, S-TREE-3"),
    _beam("hidden", "S-TREE-3", channel="hidden_in"),
    _beam("candidates", "S-TREE-2"),
    equals(
        "tree.proposed",
        "propose.parents",
        cites="S-TREE-4, S-TREE-5, S-NGRAM-4, S-NGRAM-5",
        minimum=f"{_CUT} {_FOUND}",
    ),
    equals("tree.parents", "round.parents", "verify.parents", cites="S-TREE-1, S-TREE-10", minimum="tree_rounds"),
    listed(
        "tree.steered",
        _steered,
        _STEERED,
        partial=_STEERED,
        reads=("verify.choice", "propose.tokens", "accept.correct_len", "accept.emitted"),
        concerns=_is_tree,
        cites="S-TREE-5, S-TREE-10",
        minimum=f"scenarios {_CUT} trees_cut_by_limits {_WALKS}",
    ),
    listed(
        "tree.walked",
        _walked,
        _WALKED,
        partial=_WALKED,
        concerns=_is_tree,
        cites="S-TREE-1, S-TREE-7, S-TREE-8, S-TREE-11",
        minimum=f"scenarios tree_rounds trees_moved_to_another_page {_WALKS} {_SAMPLED}",
    ),
)
