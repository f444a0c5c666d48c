"""A replay of a draft's graphs beside the same work run eagerly."""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import timing
import torch
from extend_models import MODELS, Setup, setup
from extend_round import Round, Side, Timed, first_difference

WARM = 3
Action = Callable[[Side], dict[str, torch.Tensor]]


def extend(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time one replay of a draft's graphs beside the same work run eagerly.

    Of a chain of MTP layers each layer of the extend is a graph; of a block draft, its block and its extend are. "layer
    j", "append" and "block" are from an event before the launch to one after it, a copy of its outputs included. A
    launch that finds the device idle, as the first of a round does, includes what the host takes to launch it. "all
    layers" is from the first of these events to the last. "round trip" is how long the host waits for the whole call:
    inputs, bookkeeping and device. The two sides take turns. Before and after, all that either leaves in memory is
    compared, bit for bit.
    """
    of = setup(given)
    for name, build in MODELS.items():
        built = build(of)
        for batch in of.batches:
            about = {"draft": f"{name} ({str(built.dtype).removeprefix('torch.')})", "batch": batch}
            one = Round(of, built, batch)
            # Everything that the draft does in graphs.
            actions = {"extend": one.extend} | ({"block": one.block} if one.engine.draft.proposer else {})
            for part, action in actions.items():
                yield from ({**about, **row} for row in _measured(of, one, part, action))


def check(of: Round, name: str, action: Action) -> None:
    """Raise RuntimeError unless the work leaves something, the same when it is done again and when it is replayed."""
    of.restore()
    before, eager = of.left(), _result(of, of.eager, action)
    if not first_difference({**eager, **before}, eager):
        raise RuntimeError(f"{name} leaves no trace in memory; there is nothing to time")
    for entry, tensor in eager.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise RuntimeError(f"{name}: {entry} is not finite")
    for side, said in ((of.eager, "a second eager run"), (of.replay, "the replay")):
        if difference := first_difference(_result(of, side, action), eager):
            raise RuntimeError(f"{name}, batch {of.count}: after {said} {difference}; its speed means nothing")


def _result(of: Round, side: Side, action: Action) -> dict[str, torch.Tensor]:
    """Return the result of the action, and all memory after it."""
    of.restore()
    returned = action(side)
    timing.synchronize(of.device)
    _launches(of, side)
    return {**returned, **of.left()}


def _measured(given: Setup, of: Round, name: str, action: Action) -> list[dict[str, Any]]:
    """Return the parts of one action, in order: launches, all of them if there are several, and the round trip."""
    check(of, name, action)
    times: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    replays: dict[str, int] = {}
    for turn in range(WARM + given.repeats):
        for side, place in ((of.replay, 0), (of.eager, 1)):
            for part, (took, replayed) in _once(of, side, name, action).items():
                replays[part] = max(replayed, replays.get(part, 0))
                if turn >= WARM:
                    times[part][place].append(took)
    check(of, name, action)
    return [_row(part, both, replays[part]) for part, both in times.items()]


def _row(part: str, times: tuple[list[float], list[float]], replays: int) -> dict[str, Any]:
    replay, eager = map(statistics.median, times)
    return {"part": part, "replay_us": replay, "eager_us": eager, "eager_of_replay": eager / replay, "replays": replays}


def _once(of: Round, side: Side, name: str, action: Action) -> dict[str, tuple[float, int]]:
    """Of every part of one run: microseconds, and how often its graphs have been replayed so far."""
    of.restore()
    timing.synchronize(of.device)
    start = time.perf_counter()
    action(side)
    timing.synchronize(of.device)
    trip = 1e6 * (time.perf_counter() - start)
    launches = _launches(of, side)
    total = sum(launch.replays for launch, _, _ in launches)
    if name == "block":
        parts = {"block": (1e6 * timing.seconds(*launches[0][1:]), total)}
    elif len(launches) == 1:
        parts = {"append": (1e6 * timing.seconds(*launches[0][1:]), total)}
    else:
        parts = {f"layer {one.layer}": (1e6 * timing.seconds(begin, end), one.replays) for one, begin, end in launches}
        parts["all layers"] = (1e6 * timing.seconds(launches[0][1], launches[-1][2]), total)
    return {**parts, f"{name} round trip": (trip, total)}


def _launches(of: Round, side: Side) -> list[Timed]:
    """Those of the run that has just ended. Raises RuntimeError if they are not what this side is for."""
    launches, size = side.clock.take(), of.count if side is of.replay else 0
    if not launches or any(launch.size != size or (launch.replays > 0) != (size > 0) for launch, _, _ in launches):
        raise RuntimeError(f"expected launches of graph size {size}, got {[launch for launch, _, _ in launches]}")
    return launches
