"""What became slower beyond noise: paired runs of two labels, and an interval for each measure.

Run k of one label is compared with run k of the other: if they take turns on one machine, other load on it affects
both. The interval is Student's for the mean of the logarithms of the ratios, so that slower and faster count alike and
outliers widen it. All intervals of one comparison hold together with probability 1 - SLOWER_FALSE_ALARMS (Bonferroni):
this is also the most that a comparison of equal code says "slower" with, however many measures it has. A fixed
threshold would have false alarms that depend on the machine; a bootstrap's intervals are too narrow for ten pairs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from draftproof.properties.formats.measurement import Measurement
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Outcome, worst

SLOWER_FALSE_ALARMS = 0.01
"""At most this share of comparisons of equal code say that something is slower."""
SEEN = 0.2
"""A measure passes once it cannot be slower by this share; until then its runs are too few."""
LEAST_PAIRS = 3
Group = tuple[str, tuple[str, ...], str, str]


class Compared(Value, frozen=True, kw_only=True):
    """One measure: the ratio of its times, new over base; `verdict` is FAIL if it is slower.

    `low` and `high` are its interval, None where there are too few pairs for one.
    """

    benchmark: str
    options: tuple[str, ...]
    device: str
    measure: str
    pairs: int
    ratio: float
    low: float | None
    high: float | None
    verdict: Outcome


class Comparison(Value, frozen=True, kw_only=True):
    """Two labels beside each other; `changed` are versions that differ, `unpaired` counts runs left out."""

    verdict: Outcome
    base: str
    new: str
    measures: tuple[Compared, ...]
    changed: tuple[str, ...]
    unpaired: int


def labels(history: Iterable[Measurement]) -> list[str]:
    """Return the labels of a history, the one that came last at the end."""
    return list(dict.fromkeys(one.label for one in reversed(list(history))))[::-1]


def compare(history: Sequence[Measurement], base: str, new: str) -> Comparison:
    """Return what two labels of a history say of each other; INCONCLUSIVE where nothing can be paired."""
    of_base, of_new = (_grouped(one for one in history if one.label == label) for label in (base, new))
    pairs = {group: list(zip(of_base[group], runs, strict=False)) for group, runs in of_new.items() if group in of_base}
    series = [(group, name, logs) for group, runs in pairs.items() for name, logs in _logs(runs)]
    measures = tuple(_compared(*one, each=SLOWER_FALSE_ALARMS / len(series)) for one in series)
    runs = sum(len(one) for of in (of_base, of_new) for one in of.values())
    return Comparison(
        verdict=worst([one.verdict for one in measures] or [Outcome.INCONCLUSIVE]),
        base=base,
        new=new,
        measures=measures,
        changed=tuple(sorted({said for one in pairs.values() for pair in one for said in _changed(*pair)})),
        unpaired=runs - 2 * sum(map(len, pairs.values())),
    )


def _grouped(runs: Iterable[Measurement]) -> dict[Group, list[Measurement]]:
    groups = defaultdict(list)
    for one in runs:
        groups[one.benchmark, one.options, one.device, one.machine].append(one)
    return dict(groups)


def _logs(pairs: Sequence[tuple[Measurement, Measurement]]) -> Iterator[tuple[str, list[float]]]:
    """Yield the measures that all runs have, with the logarithm of new over base of each pair."""
    names = [name for name in pairs[0][0].seconds if all(name in one.seconds for pair in pairs for one in pair)]
    for name in names:
        yield name, [math.log(new.seconds[name] / base.seconds[name]) for base, new in pairs]


def _compared(group: Group, name: str, logs: Sequence[float], *, each: float) -> Compared:
    found = interval(logs, each)
    low, high = map(math.exp, found) if found else (None, None)
    return Compared(
        benchmark=group[0],
        options=group[1],
        device=group[2],
        measure=name,
        pairs=len(logs),
        ratio=math.exp(float(np.mean(logs))),
        low=low,
        high=high,
        verdict=_verdict(low, high),
    )


def _verdict(low: float | None, high: float | None) -> Outcome:
    if low is None or high is None:
        return Outcome.INCONCLUSIVE
    return Outcome.FAIL if low > 1 else Outcome.PASS if high < 1 + SEEN else Outcome.INCONCLUSIVE


def interval(logs: Sequence[float], alarms: float) -> tuple[float, float] | None:
    """Return the interval of a mean; it misses the true one above or below, each with probability `alarms`.

    None of fewer than LEAST_PAIRS values, and of values that are all equal: no clock says that.
    """
    from scipy.stats import t as student

    count, spread = len(logs), float(np.std(logs, ddof=1)) if len(logs) > 1 else 0.0
    if count < LEAST_PAIRS or spread == 0:
        return None
    mean, reach = float(np.mean(logs)), float(student.isf(alarms, count - 1)) * spread / math.sqrt(count)
    return mean - reach, mean + reach


def _changed(base: Measurement, new: Measurement) -> Iterator[str]:
    for name in sorted({*base.versions, *new.versions}):
        before, after = base.versions.get(name, "none"), new.versions.get(name, "none")
        if before != after:
            yield f"{name} {before} to {after}"
