"""A campaign whose process and whose workers are killed at random, again and again: nothing is lost, nothing is double.

    python -P tests/fuzz/kill_campaign.py --kills 50

Every other kill is of the process itself, which is started again; the others are of one of its workers. At the end the
campaign is left to finish, and compared with one of the same seed that nobody disturbed.
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

FAULT = "draft-positions-advanced-early"
SAME = {
    "scenarios": "number, hash, origin, draft, state, outcome, identity, new_bins",
    "bins": "name, hits, first",
    "contracts": "*",
    "minimums": "*",
    "counts": "*",
    "draft_counts": "*",
    "again": "*",
}
"""What two campaigns of one seed have in common, whatever happened to them; findings are compared by identity and hits,
since how far they are shrunk is a matter of time."""


def main() -> int:
    """0 if both campaigns know the same; says what differs otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default=FAULT, help="none: the healthy engine")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="draftproof-kills-"))
    killed = _disturb(given, folder / "killed")
    code = subprocess.run(_command(given, folder / "whole"), check=False, stdout=subprocess.DEVNULL).returncode
    wrong = list(differences(folder / "killed", folder / "whole"))
    for line in wrong:
        print(f"WRONG: {line}")
    print(json.dumps({**killed, "code_undisturbed": code, "wrong": len(wrong), "folder": str(folder)}))
    return 1 if wrong else 0


def _command(given: argparse.Namespace, run: Path) -> list[str]:
    command = [sys.executable, "-P", "-m", "draftproof.cli", "fuzz", "--run", str(run), "--time", "2h"]
    command += ["--workers", str(given.workers), "--seed", str(given.seed), "--examples", str(given.examples)]
    return command if given.fault == "none" else [*command, "--fault", given.fault]


def _disturb(given: argparse.Namespace, run: Path) -> dict[str, Any]:
    """Start, kill, start again; then let it end."""
    draw = random.Random(given.seed)
    kills = {"parents": 0, "workers": 0, "early_ends": 0}
    process = _start(given, run)
    while kills["parents"] + kills["workers"] < given.kills:
        if process.poll() is not None:
            # It was done before it could be killed so often: what is known goes on to be known.
            kills["early_ends"] += 1
            given.examples += 50
            process = _start(given, run)
        if (kills["parents"] + kills["workers"]) % 2:
            kills["workers"] += _kill_worker(process, draw)
            continue
        time.sleep(draw.uniform(0.1, 12.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills["parents"] += 1
            process = _start(given, run)
    code = process.wait()
    done = rows(run, "SELECT count(*) FROM scenarios WHERE state = 'done'")[0][0]
    return {**kills, "code": code, "scenarios": done, "examples": given.examples}


def _start(given: argparse.Namespace, run: Path) -> subprocess.Popen[bytes]:
    """Workers of a killed process die with it: they are looked for, since they would go on for nobody."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(_command(given, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def _kill_worker(process: subprocess.Popen[bytes], draw: random.Random) -> int:
    """Kill one worker that is up, some time after it is; 1 if one was."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        workers = [one for one in _children(process.pid) if _is_worker(one)]
        if workers:
            time.sleep(draw.uniform(2.0, 12.0))
            victim = draw.choice(workers)
            if victim.is_running() and process.poll() is None:
                victim.kill()
                return 1
        time.sleep(0.2)
    return 0


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "draftproof.harness.workers.worker" in process.cmdline()
    except psutil.Error:
        # It ended in this moment.
        return False


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def differences(killed: Path, whole: Path) -> Iterator[str]:
    """What is lost, double, or otherwise than in the campaign that nobody disturbed."""
    done = rows(killed, "SELECT number FROM scenarios WHERE state = 'done' ORDER BY number")
    if [number for (number,) in done] != list(range(len(done))):
        yield f"done are {done[:5]} .. {done[-5:]}, not 0 .. {len(done) - 1}"
    for table, columns in SAME.items():
        ours = sorted(rows(killed, f"SELECT {columns} FROM {table}"), key=repr)
        theirs = sorted(rows(whole, f"SELECT {columns} FROM {table}"), key=repr)
        if ours != theirs:
            lost = [row for row in theirs if row not in ours]
            more = [row for row in ours if row not in theirs]
            yield f"{table}: {len(lost)} rows lost, as {lost[:2]}; {len(more)} more, as {more[:2]}"
    hits = "SELECT identity, hits, first FROM findings WHERE hits > 0 ORDER BY identity"
    if rows(killed, hits) != rows(whole, hits):
        yield f"findings: {rows(killed, hits)} and undisturbed {rows(whole, hits)}"
    for (slug,) in rows(killed, "SELECT slug FROM findings"):
        if not (killed / "findings" / slug / "case.json").exists():
            yield f"findings/{slug} has no case"


def rows(run: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(run / "results.sqlite")) as db:
        return db.execute(query).fetchall()


if __name__ == "__main__":
    sys.exit(main())
