"""How soon wrong samplers are found, measured on a seed: the tables of docs/sampling.md.

Run as `python -m tests.kernels.sampler_table --seed 12`.
"""

import argparse
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tests.distribution import critical, draws_needed
from tests.kernels import samplers, test_samplers
from tests.kernels.samplers import texts
from tests.reference import test_rejection
from tests.reference.test_rejection import P, Q

REQUESTS, MOST, APART = 200, 200, 36
"""Requests of which the median is told; rounds in which a first difference is looked for; bits that seeds are apart."""
MISSES = 0.001


class Line(NamedTuple):
    """Of a wrong sampler: median and last of the rounds that first differ; rounds to an alarm; rounds of its power."""

    name: str
    median: int
    last: int
    alarm: int
    power: int


def of_target(parents: tuple[int, ...], seed: int) -> Iterator[Line]:
    """Yield a line for each sampler of drafts that are greedy, along a chain or a tree."""
    law, drafter = test_samplers.FILTERED, test_samplers.DRAFTERS["likeliest"]
    first, limit = test_samplers.first_differences(parents, REQUESTS, MOST, seed << APART), test_samplers.limit(law)
    assert first.pop("engine").min() == MOST + 1
    start, length = test_samplers.START, test_samplers.LENGTH
    for name, wrong in test_samplers.OF[parents].wrong.items():
        seen = test_samplers.looked_at(wrong, law, drafter, parents, (seed << APART) + (1 << 30))
        draws = draws_needed(test_samplers.odds(wrong, parents), law.text(start, length), limit, MISSES)
        _, rounds = texts(wrong, law, drafter, start, np.arange(2000) + (seed << APART), length, parents)
        yield line(name, first[name], next(look for look, g in seen.items() if g > limit), draws * rounds.mean())


def of_drawn(seed: int) -> Iterator[Line]:
    """Yield a line for each sampler of drafts that are drawn: a round is one place."""
    rounds, limit = test_rejection.LOOKS[6], critical(len(P), test_rejection.FALSE_ALARMS)
    for name, wrong in test_rejection.WRONG.items():
        chosen, differs = test_rejection.differing(wrong, seed << APART, rounds)
        of_each = differs.reshape(REQUESTS, -1)
        first = np.where(of_each.any(1), of_each.argmax(1) + 1, of_each.shape[1] + 1)
        odds = np.array([float(share) for share in test_rejection.round_law(P, Q, wrong)])
        draws = draws_needed(odds, test_rejection.LAW, limit, MISSES)
        yield line(name, first, test_rejection.first_alarm(chosen), draws)


def line(name: str, first: np.ndarray, alarm: int, power: float) -> Line:
    """Return a line of the rounds [R] in which each request first differs."""
    return Line(name, int(np.median(first)), int(first.max()), alarm, int(np.ceil(power)))


def healthy(parents: tuple[int, ...], seed: int) -> tuple[int, float]:
    """Return how many G-tests the engine's own sampler was put to, and its largest G as a share of the limit."""
    found = [
        g / test_samplers.limit(law)
        for law in test_samplers.HEALTHY
        for drafter in test_samplers.DRAFTERS.values()
        for g in test_samplers.looked_at(samplers.engine, law, drafter, parents, (seed << APART) + (2 << 30)).values()
    ]
    return len(found), max(found)


def table(title: str, lines: Iterable[Line]) -> None:
    print(f"\n{title}\n\n| wrong sampler | median | last | G-test alone | power |\n|---|--:|--:|--:|--:|", flush=True)
    for one in lines:
        print(
            f"| {one.name.replace('_', ' ')} | {one.median} | {one.last} | {one.alarm:,} | {one.power:,} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=12, help="of all random numbers, below 2^26 (default 12)")
    seed = parser.parse_args().seed
    if not 0 <= seed < 1 << 26:
        parser.error(f"invalid --seed {seed}: expected a whole number from 0 to 2^26 - 1")
    for title, parents in (("Chains of 3 drafts", test_samplers.CHAIN), ("A tree of 7 drafts", test_samplers.TREE)):
        table(title, of_target(parents, seed))
        count, share = healthy(parents, seed)
        print(f"\nthe engine's sampler: {count} G-tests, the largest at {share:.2f} of its limit", flush=True)
    table("Drafts that are drawn", of_drawn(seed))


if __name__ == "__main__":
    main()
