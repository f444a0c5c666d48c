"""One replay of a draft's graphs beside the same work run eagerly, in one run (`make bench-gpu`).

Of a chain of MTP layers each layer of the extend is a graph; of a block draft, its block and its extend are. "layer j",
"append" and "block" are from an event before the launch to one after it, a copy of its outputs included. A launch that
finds the device idle, as the first of a round does, includes what the host takes to launch it. "all layers" is from the
first of these events to the last. "round trip" is how long the host waits for the whole call: inputs, bookkeeping and
device. The two sides take turns. Before and after, all that either leaves in memory is compared, bit for bit.
`--tiny` runs on a CPU, where only ratios mean anything.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import bench
import torch
from extend_models import MODELS, STEPS, Setup, setup
from extend_round import Round, Side, Timed, first_difference

WARM = 3
COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "draft": lambda row: f"{row['draft']} ({row['dtype']})",
    "batch": lambda row: row["batch"],
    "part": lambda row: row["part"],
    "replay us": lambda row: f"{row['replay_us']:.1f}",
    "eager us": lambda row: f"{row['eager_us']:.1f}",
    "eager / replay": lambda row: f"{row['ratio']:.2f}",
    "replays": lambda row: row["replays"],
}
Action = Callable[[Side], dict[str, torch.Tensor]]


def main() -> None:
    """Check, measure, print a table, write JSON."""
    arguments = bench.parser(__doc__, "tiny", "batch", "repeats", "seed", *bench.KEPT).parse_args()
    batches = tuple(arguments.batch) if arguments.batch else None
    given = setup(arguments.tiny, arguments.seed, batches, arguments.repeats)
    with torch.no_grad():
        result = measure(given)
    columns = {name: cell for name, cell in COLUMNS.items() if given.device == "cuda" or not name.endswith(" us")}
    title = f"{result['device']}: a graph's replay beside the same work run eagerly"
    bench.show(title, result["rows"], columns, left=("draft", "part"))
    seconds = {
        f"{row['draft']}, batch {row['batch']}, {row['part']}": 1e-6 * row["replay_us"] for row in result["rows"]
    }
    bench.keep(arguments, result, seconds)


def measure(given: Setup) -> dict[str, Any]:
    """Everything measured; times in microseconds. No progress is shown: it would take the host's time from launches."""
    rows: list[dict[str, Any]] = []
    for name, build in MODELS.items():
        built = build(given)
        for batch in given.batches:
            about = {"draft": name, "dtype": str(built.dtype).removeprefix("torch."), "batch": batch}
            of = Round(given, built, batch)
            # Everything that the draft does in graphs.
            actions = {"extend": of.extend} | ({"block": of.block} if of.engine.draft.proposer else {})
            for part, action in actions.items():
                rows.extend({**about, **row} for row in _measured(given, of, part, action))
    return {
        **bench.machine(given.device),
        "seed": given.seed,
        "steps": STEPS,
        "prompt": given.prompt,
        "repeats": given.repeats,
        "rows": rows,
    }


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
    bench.synchronize(of.device)
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
    return {"part": part, "replay_us": replay, "eager_us": eager, "ratio": eager / replay, "replays": replays}


def _once(of: Round, side: Side, name: str, action: Action) -> dict[str, tuple[float, int]]:
    """Of every part of one run: microseconds, and how often its graphs have been replayed so far."""
    of.restore()
    bench.synchronize(of.device)
    start = time.perf_counter()
    action(side)
    bench.synchronize(of.device)
    trip = 1e6 * (time.perf_counter() - start)
    launches = _launches(of, side)
    total = sum(launch.replays for launch, _, _ in launches)
    if name == "block":
        parts = {"block": (1e6 * bench.seconds(*launches[0][1:]), total)}
    elif len(launches) == 1:
        parts = {"append": (1e6 * bench.seconds(*launches[0][1:]), total)}
    else:
        parts = {f"layer {one.layer}": (1e6 * bench.seconds(begin, end), one.replays) for one, begin, end in launches}
        parts["all layers"] = (1e6 * bench.seconds(launches[0][1], launches[-1][2]), total)
    return {**parts, f"{name} round trip": (trip, total)}


def _launches(of: Round, side: Side) -> list[Timed]:
    """Those of the run that has just ended. Raises RuntimeError if they are not what this side is for."""
    launches, size = side.clock.take(), of.count if side is of.replay else 0
    if not launches or any(launch.size != size or (launch.replays > 0) != (size > 0) for launch, _, _ in launches):
        raise RuntimeError(f"expected launches of graph size {size}, got {[launch for launch, _, _ in launches]}")
    return launches


if __name__ == "__main__":
    main()
