"""A campaign on a Ray cluster whose workers are killed at random, and whose head is once: nothing is lost or double.

    python -P tests/fuzz/kill_cluster.py --kills 20

The cluster is made on this machine, with a head of its own. At the end the campaign is compared with one of the same
seed in a local pool that nobody disturbed.
"""

import argparse
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.fuzz.kill_campaign import FAULT, differences, rows

_READY_SECONDS = 120.0
_LOADED = 4.0
"""CPU seconds after which a worker has imported all it needs, and has run scenarios for about as long."""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_raylet_start_wait_time_s": "120"}


class Head:
    """A head on this machine that says it has `cpus` and `gpus`; `restart` kills all of it and starts it again."""

    def __init__(self, folder: Path, cpus: int, gpus: int = 0) -> None:
        self.folder, self._cpus, self._gpus, self._starts = folder, cpus, gpus, 0
        self._port, self._client = _free_port(), _free_port()
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def client(self) -> str:
        return f"ray://127.0.0.1:{self._client}"

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        # Paths of sockets are short, so that this is no folder of a test's.
        self._temporary = tempfile.TemporaryDirectory(prefix="dp-ray-", ignore_cleanup_errors=True)
        command += ["--port", str(self._port), "--ray-client-server-port", str(self._client)]
        command += ["--num-cpus", str(self._cpus), "--object-store-memory", "100000000", "--include-dashboard=false"]
        command += ["--num-gpus", str(self._gpus), "--disable-usage-stats", "--temp-dir", self._temporary.name]
        self._log = self.folder / f"head-{self._starts}.log"
        self._starts += 1
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True)
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + _READY_SECONDS
        while b"Ray runtime started" not in self._log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"the head did not start:\n{self._log.read_text(errors='replace')}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Kill all that this head started; nothing of another cluster."""
        if self._process.poll() is None:
            of_head = [*psutil.Process(self._process.pid).children(recursive=True), psutil.Process(self._process.pid)]
            for one in of_head:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(of_head, timeout=10)
        self._process.wait()
        self._temporary.cleanup()

    def restart(self, away: float) -> None:
        self.stop()
        time.sleep(away)
        self.start()

    def workers(self) -> list[psutil.Process]:
        """Return the processes of actors whose own worker has run for a while: others have nothing in hand."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
            return [one for one in children if _works(one)]
        return []


def _works(process: psutil.Process) -> bool:
    try:
        if not process.cmdline()[:1] or not process.cmdline()[0].startswith("ray::Supervisor"):
            return False
        return any(child.cpu_times().user > _LOADED for child in process.children())
    except psutil.Error:
        # It ended in this moment.
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def cluster(folder: Path, cpus: int, gpus: int = 0) -> Iterator[Head]:
    """Yield a head on this machine, and stop it."""
    head = Head(folder, cpus, gpus)
    try:
        yield head
    finally:
        head.stop()


def fuzz(run: Path, *, workers: int, seed: int, examples: int, fault: str, address: str = "") -> list[str]:
    """Return the command of a campaign."""
    command = [sys.executable, "-P", "-m", "draftproof.cli", "fuzz", "--run", str(run), "--time", "2h"]
    command += ["--workers", str(workers), "--seed", str(seed), "--examples", str(examples)]
    command += ["--cluster", address] if address else []
    return command if fault == "none" else [*command, "--fault", fault]


def disturb(head: Head, command: list[str], *, kills: int, seed: int, pause: tuple[float, float]) -> dict[str, Any]:
    """Run a campaign; kill workers at random and, half of the kills done, the head. Goes on until it ends."""
    draw, done, restarts = random.Random(seed), 0, 0
    log = head.folder / "campaign.log"
    with log.open("wb") as told:
        process = subprocess.Popen(command, stdout=told, stderr=told, env=ENVIRONMENT)
    while process.poll() is None:
        time.sleep(draw.uniform(*pause))
        if done < kills and (found := head.workers()):
            with contextlib.suppress(psutil.NoSuchProcess):
                draw.choice(found).kill()
                done += 1
        if done >= max(1, kills // 2) and not restarts and process.poll() is None:
            head.restart(draw.uniform(0, 3))
            restarts = 1
    end = log.read_text(errors="replace")[-500:]
    return {"workers_killed": done, "head_restarts": restarts, "code": process.returncode, "end": end}


def main() -> int:
    """0 if both campaigns know the same; says what differs otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pause", type=float, nargs=2, default=(2.0, 8.0), help="seconds between two kills")
    parser.add_argument("--examples", type=int, default=80)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default=FAULT, help="none: the healthy engine")
    parser.add_argument("--client", action="store_true", help="join as ray://HOST:PORT")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="draftproof-kills-"))
    folder.mkdir(parents=True, exist_ok=True)
    same = {name: getattr(given, name) for name in ("workers", "seed", "examples", "fault")}
    with cluster(folder, given.workers) as head:
        address = head.client if given.client else head.address
        command = fuzz(folder / "killed", **same, address=address)
        killed = disturb(head, command, kills=given.kills, seed=given.seed, pause=given.pause)
    code = subprocess.run(fuzz(folder / "whole", **same), check=False, stdout=subprocess.DEVNULL).returncode
    wrong = list(differences(folder / "killed", folder / "whole"))
    for line in wrong:
        print(f"WRONG: {line}")
    told = [what for (what,) in rows(folder / "killed", "SELECT what FROM troubles")]
    print(
        json.dumps({**killed, "code_undisturbed": code, "wrong": len(wrong), "troubles": told, "folder": str(folder)})
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
