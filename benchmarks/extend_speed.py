"""One replay of a draft's graphs beside the same work run eagerly, in one run (`make bench-gpu`).

Of a chain of MTP layers each layer of the extend is a graph; of a block draft, its block and its extend are. "layer j",
"append" and "block" are from an event before the launch to one after it, a copy of its outputs included. A launch that
finds the device idle, as the first of a round does, includes what the host takes to launch it. "all layers" is from the
first of these events to the last. "round trip" is how long the host waits for the whole call: inputs, bookkeeping and
device. The two sides take turns. Before and after, all that either leaves in memory is compared, bit for bit.
`--tiny` runs on a CPU, where only ratios mean anything.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from extend_clock import Mark, microseconds
from extend_models import MODELS, STEPS, Setup, setup
from extend_round import Round, Side, first_difference
from rich.console import Console
from rich.table import Table

from draftproof.engine.stages import Launch

WARM = 3
Action = Callable[[Side], dict[str, torch.Tensor]]


def main() -> None:
    """Check, measure, print a table, write JSON."""
    arguments = _arguments()
    batches = tuple(arguments.batch) if arguments.batch else None
    given, console = setup(arguments.tiny, arguments.seed, batches, arguments.repeats), Console(width=120)
    with torch.no_grad():
        result = measure(given)
    console.print(_table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure(given: Setup) -> dict[str, Any]:
    """Everything measured; times in microseconds. No progress is shown: it would take the host's time from launches."""
    rows: list[dict[str, Any]] = []
    for name, build in MODELS.items():
        built = build(given)
        for batch in given.batches:
            about = {"draft": name, "dtype": str(built.dtype).removeprefix("torch."), "batch": batch}
            rows.extend({**about, **row} for row in measure_round(given, Round(given, built, batch)))
    return {
        "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "seed": given.seed,
        "steps": STEPS,
        "prompt": given.prompt,
        "repeats": given.repeats,
        "rows": rows,
    }


def measure_round(given: Setup, of: Round) -> list[dict[str, Any]]:
    """Everything that the draft of one round does in graphs."""
    actions: dict[str, Action] = {"extend": of.extend}
    if of.engine.draft.proposer:
        actions["block"] = of.block
    return [row for name, action in actions.items() for row in _measured(given, of, name, action)]


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
    """What it returns, and all memory after it."""
    of.restore()
    returned = action(side)
    of.synchronize()
    _launches(of, side)
    return {**returned, **of.left()}


def _measured(given: Setup, of: Round, name: str, action: Action) -> list[dict[str, Any]]:
    """The parts of one action, in order: launches, all of them if there are several, and the round trip."""
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
    of.synchronize()
    start = time.perf_counter()
    action(side)
    of.synchronize()
    trip = 1e6 * (time.perf_counter() - start)
    launches = _launches(of, side)
    total = sum(launch.replays for launch, _, _ in launches)
    if name == "block":
        parts = {"block": (microseconds(*launches[0][1:]), total)}
    elif len(launches) == 1:
        parts = {"append": (microseconds(*launches[0][1:]), total)}
    else:
        parts = {f"layer {one.layer}": (microseconds(begin, end), one.replays) for one, begin, end in launches}
        parts["all layers"] = (microseconds(launches[0][1], launches[-1][2]), total)
    return {**parts, f"{name} round trip": (trip, total)}


def _launches(of: Round, side: Side) -> list[tuple[Launch, Mark, Mark]]:
    """Those of the run that has just ended. Raises RuntimeError if they are not what this side is for."""
    launches, size = side.clock.take(), of.count if side is of.replay else 0
    if not launches or any(launch.size != size or (launch.replays > 0) != (size > 0) for launch, _, _ in launches):
        raise RuntimeError(f"expected launches of graph size {size}, got {[launch for launch, _, _ in launches]}")
    return launches


def _table(result: dict[str, Any]) -> Table:
    cuda = result["device"] != "cpu"
    table = Table(title=f"{result['device']}: a graph's replay beside the same work run eagerly")
    for name in ("draft", "batch", "part", *(("replay us", "eager us") if cuda else ()), "eager / replay", "replays"):
        table.add_column(name, justify="left" if name in ("draft", "part") else "right")
    for row in result["rows"]:
        times = [f"{row[name]:.1f}" for name in ("replay_us", "eager_us")] if cuda else []
        about = (f"{row['draft']} ({row['dtype']})", str(row["batch"]), row["part"])
        table.add_row(*about, *times, f"{row['ratio']:.2f}", str(row["replays"]))
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="tiny models on the CPU, to try the script itself")
    parser.add_argument("--batch", type=int, action="append", help="batch size, may be given several times")
    parser.add_argument("--repeats", type=int, help="runs that a median is over")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
