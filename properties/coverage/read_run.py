"""Read the sample of a whole run off its evidence."""

from __future__ import annotations

from collections import Counter

from draftproof.properties.coverage.read_mixed import read_mixed
from draftproof.properties.coverage.read_overlap import read_overlap
from draftproof.properties.coverage.read_token_budget import read_token_budget
from draftproof.properties.coverage.samples import RunSample
from draftproof.properties.coverage.shown import drafts_seen
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.rank_counts import rank_counts, tensor_counts
from draftproof.properties.evidence.tolerances import is_right_token
from draftproof.properties.values.observed import LaunchKind

# Variants that must show in a channel: rows and pages that did not move prove nothing.
_SHOWN_IN = {"other_batches": "round.rows", "other_memory": "round.table"}


_NOTED_BY = (read_token_budget, read_mixed, read_overlap, rank_counts, tensor_counts)
"""What tells how often facts were in a run, by their names, beside the counts of its prefix caches."""


def read_run(evidence: Evidence) -> RunSample:
    """Return the sample of the whole run."""
    extends, first_layer, replaced = _chain_counts(evidence)
    notes = Counter(evidence.prefixes.counts)
    for reader in _NOTED_BY:
        notes.update(reader(evidence))
    return RunSample(
        scenario=evidence.scenario,
        form=evidence.form,
        layers=evidence.scenario.states.commit if evidence.hybrid else "dense",
        page_size=evidence.page_size,
        changed=_changed(evidence),
        chain=_chain(evidence),
        chained_extends=extends,
        first_layer_extends=first_layer,
        guesses_replaced=replaced,
        ties=len(evidence.ties) + sum(map(len, evidence.draft_ties.values())),
        token_ties=_token_ties(evidence),
        is_shown=bool(evidence.subject.observations),
        has_text=bool(evidence.subject.channel("accept.emitted"))
        or not any(one.tokens for one in evidence.script.requests),
        drafts_seen=drafts_seen(evidence.subject),
        narrow_replays=_narrow_replays(evidence),
        notes=notes,
    )


def _narrow_replays(evidence: Evidence) -> int:
    """Count replays of verify graphs for fewer drafts than a round may have."""
    verifies = (one for one in evidence.schedule.launches if one.kind == LaunchKind.VERIFY and one.replays > 0)
    return sum(one.width <= evidence.scenario.steps for one in verifies)


def _token_ties(evidence: Evidence) -> int:
    """Count the tokens of real texts that are right, and not the best (S-TEXT-4)."""
    gaps = (gap for of_text in evidence.reference.token_gaps.values() for gap in of_text)
    return sum(gap.below > 0 and is_right_token(evidence.scenario, gap) for gap in gaps)


def _changed(evidence: Evidence) -> str:
    """Return the variant if the variant run differs where the variant must show."""
    variant, other = evidence.scenario.variant, evidence.varied
    if other is None:
        return "none"
    channel = _SHOWN_IN.get(variant)
    moved = channel is None or evidence.subject.channel(channel) != other.channel(channel)
    return variant if moved else "none"


def _chain(evidence: Evidence) -> str:
    """Return what a draft is that proposes a token with each layer; "none" of any other."""
    if evidence.form.proposes != "chain":
        return "none"
    layers = evidence.form.layers
    if layers == 1:
        return "one layer"
    if not getattr(evidence.scenario.draft, "chain", True):
        return "unchained"
    return "layers to spare" if layers > evidence.scenario.steps else "chained"


def _chain_counts(evidence: Evidence) -> tuple[int, int, int]:
    """Count extends of layers j >= 1, extends of layer 0 after a round, and entries whose guess was replaced.

    A guess is replaced when the entry's token has become known and differs from the one guessed in the round before.
    """
    if evidence.form.proposes != "chain":
        return 0, 0, 0
    done = {key[:2]: length for key, length in evidence.subject.typed("commit.length", int).items()}
    proposals = evidence.reference.channel("extend.proposal")
    ids, replaced = evidence.reference.channel("extend.ids"), 0
    for key, token in ids.items():
        length = done.get(key[:2])
        known = length is not None and key.row + 1 + key.layer <= length
        before = ids.get(key._replace(round=key.round - 1))
        replaced += int(key.layer > 0 and known and before not in (None, token))
    extends = sum(key.layer > 0 and key[:2] in done for key in proposals)
    return extends, sum(key.round > 0 and not key.layer for key in proposals), replaced
