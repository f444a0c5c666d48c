"""Counts: how often each fact was in a run. A contract's minimum is held to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from draftproof.properties.coverage.fact import Of
from draftproof.properties.coverage.facts import FACT_NAMES, FACTS, FACTS_BY_NAME, GROUPS
from draftproof.properties.coverage.read_rounds import read_samples
from draftproof.properties.coverage.samples import Samples
from draftproof.properties.evidence.evidence import Evidence


def counts(evidence: Evidence) -> dict[str, int]:
    """Return how often each fact was, 0 where nothing of the kind happened. Additive over scenarios."""
    if evidence.ranks and evidence.beside:
        # Every rank does the same.
        return counts(replace(evidence, ranks=()))
    if evidence.ranks:
        return _of_all_ranks([counts(replace(one, ranks=())) for one in evidence.ranks])
    samples = _by_kind(read_samples(evidence))
    return {fact.name: sum(map(fact.count, samples[fact.of])) for fact in FACTS}


def _by_kind(samples: Samples) -> Mapping[Of, Sequence[object]]:
    return {
        "scenario": (samples.run,),
        "run": (samples.run,),
        "request": samples.requests,
        "batch": samples.batches,
        "launch": samples.launches,
        "round": samples.rounds,
    }


def _of_all_ranks(each: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the counts of a scenario: it is one, and what its ranks did is added up."""
    return {
        name: (max if FACTS_BY_NAME[name].of == "scenario" else sum)(one[name] for one in each) for name in FACT_NAMES
    }


def total(each: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum over scenarios, with every name present."""
    counter = Counter(dict.fromkeys(FACT_NAMES, 0))
    for one in each:
        counter.update(one)
    return dict(counter)


def unreached(minimum: Iterable[str], counted: Mapping[str, int], unreachable: frozenset[str]) -> tuple[str, ...]:
    """Return in words the counts of a minimum that are zero and need not be."""
    return tuple(f"{name} >= 1" for name in minimum if name not in unreachable and not counted.get(name))


def came_up(counted: Iterable[Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return in how many scenarios each fact occurred, by group and words, given the counts of each scenario."""
    each = list(counted)
    return {
        group: {fact.words: sum(bool(one.get(fact.name)) for one in each) for fact in facts}
        for group, facts in GROUPS.items()
    }
