"""What was exercised of each kind of draft.

`K` drafts of a round, n the context length before it, `j` a layer of a chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.forms import Form
from draftproof.properties.evidence.rounds import Round
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.trace import Key, integers

STEPS = ("draft_steps", "second_draft_steps")
CHAINS = ("layers_chained", "layers_unchained", "guesses_replaced", "chains_of_one")
BLOCKS = ("blocks", "blocks_cut")
MATCHES = ("matches", "no_matches", "matches_after_partial", "matches_of_fewer", "unfound_beside_found")
NAMES = (
    *(f"{name}_scenarios" for name in ALGORITHMS),
    *CHAINS,
    *BLOCKS,
    *MATCHES,
    "own_accepted",
    "own_rejected",
    "zero_tails",
)


# What takes two drafts in a round, or two layers.
_OF_TWO = (
    "layers_chained",
    "guesses_replaced",
    "accept_partial",
    "partial_accept_padded_replay",
    "partial_accept_padded_replay_at_page_boundary",
    "all_accepted_then_draft",
    "taps_off_long_proposals",
    "states_committed_partial",
    "step_switches_up",
    "step_switches_down",
)


def beyond(form: Form, *, real: bool) -> frozenset[str]:
    """The counts that no scenario of a draft can reach; a real chain is never without what chains it."""
    names = {f"{name}_scenarios" for name in ALGORITHMS if name != form.kind.name}
    lacking = ((form.steps, STEPS), (form.chained, CHAINS), (form.block, BLOCKS), (form.matches, MATCHES))
    names.update(*(own for has, own in lacking if not has))
    if real and form.chained:
        # A proposal is long if it has three tokens.
        long = {"taps_off_long_proposals"} if form.layers < 3 else ()
        names.update({"layers_unchained"}, _OF_TWO if form.layers == 1 else {*long, "chains_of_one"})
    if real:
        # They have a prompt's tokens and step counts of their own, and few scenarios.
        names |= {"zero_tails", "unfound_beside_found"}
    return frozenset(names)


def counts(evidence: Evidence, rounds: Sequence[Round]) -> Counter[str]:
    """Every name of NAMES that is not 0."""
    counter: Counter[str] = Counter({f"{evidence.form.kind.name}_scenarios": 1})
    for round_ in rounds:
        if not round_.forced:
            counter["own_accepted"] += round_.accepted
            counter["own_rejected"] += round_.drafts - round_.accepted
    counter["zero_tails"] = _zero_tails(evidence)
    if evidence.form.chained:
        counter.update(_chains(evidence))
    if evidence.form.block:
        counter.update(_blocks(evidence, rounds))
    if evidence.form.matches:
        counter.update(_matches(evidence, rounds))
    return counter


def _chains(evidence: Evidence) -> Counter[str]:
    """Extends of a layer j >= 1, and entries of those whose guessed token turned out to be another."""
    done = {key[:2]: length for key, length in evidence.subject.channel("commit.length").items()}
    proposals = evidence.reference.channel("extend.proposal")
    extends = sum(key.layer > 0 and key[:2] in done for key in proposals)
    chain = getattr(evidence.scenario.draft, "chain", True)
    found: Counter[str] = Counter({"layers_chained" if chain else "layers_unchained": extends})
    found["chains_of_one"] = sum(key.round > 0 for key in proposals) if evidence.form.layers == 1 else 0
    ids = evidence.reference.channel("extend.ids")
    for key, token in ids.items():
        length = done.get(key[:2])
        known = isinstance(length, int) and key.row + 1 + key.layer <= length
        before = ids.get(key._replace(round=key.round - 1))
        found["guesses_replaced"] += int(key.layer > 0 and known and before not in (None, token))
    return found


def _blocks(evidence: Evidence, rounds: Sequence[Round]) -> Counter[str]:
    """Blocks, and those with fewer rows than wished because the request was near its limits."""
    found: Counter[str] = Counter()
    for round_ in rounds:
        found["blocks"] += int(round_.drafts > 0)
        if round_.row is not None:
            room = evidence.drafts_wanted(round_.row)
            found["blocks_cut"] += int(0 < round_.drafts < room)
    return found


def _matches(evidence: Evidence, rounds: Sequence[Round]) -> Counter[str]:
    """Matches, and what came before them or of them."""
    found: Counter[str] = Counter()
    partial = {(one.request, one.number + 1) for one in rounds if 0 < one.accepted < one.drafts}
    for round_ in rounds:
        match = integers(evidence.reference.channel("propose.match").get(Key(round_.request, round_.number)))
        matched = bool(match) and match[0] > 0
        found["matches"] += int(matched)
        found["no_matches"] += int(bool(match) and not matched)
        found["matches_after_partial"] += int(matched and (round_.request, round_.number) in partial)
        if matched and round_.row is not None:
            room = evidence.drafts_allowed(round_.row, round_.context)
            there = evidence.found(round_.request, round_.number, round_.context)
            found["matches_of_fewer"] += int(there is not None and there < room)
    for rows in evidence.batches.values():
        nothing = any(row.phase and not row.count and evidence.drafts_wanted(row) for row in rows)
        something = any(row.phase and row.count for row in rows)
        found["unfound_beside_found"] += int(nothing and something and evidence.scenario.adaptive is not None)
    return found


def _zero_tails(evidence: Evidence) -> int:
    """Later chunks of prompts that begin with token 0."""
    prompts, chunk = (one.prompt for one in evidence.scenario.requests), evidence.scenario.schedule.chunk
    return sum(prompt[start] == 0 for prompt in prompts for start in range(chunk, len(prompt), chunk))
