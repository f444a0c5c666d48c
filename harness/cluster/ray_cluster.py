"""All that Draftproof asks of Ray: to join a cluster, to start workers in it, and whether it is still there."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from draftproof.harness.cluster.address import endpoint
from draftproof.harness.cluster.supervisor import Supervisor

A_GPU = 4
"""Workers that share a GPU, as on a machine of one's own."""
_SETTINGS = {
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "10",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_DEDUP_LOGS": "0",
}
"""For how many seconds a head may be away before this process gives up; another one then joins again."""
_LISTENS_SECONDS = 10.0
_ATTEMPTS = 2
"""A busy head may need longer to let a client in than Ray waits, 30 seconds."""


class RayActor:
    """One worker of a cluster, which is started where there is room for it."""

    def __init__(self, device: str, spec: bytes) -> None:
        needs: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        needs |= {"num_gpus": 1 / A_GPU} if device == "cuda" else {"scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(Supervisor).options(**needs).remote(spec)

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Return what a method of the Supervisor will return."""
        made: Future[Any] = getattr(self._actor, method).remote(*arguments).future()
        return made


class RayCluster:
    """A cluster that was joined. Raises whatever Ray raises if it is not there."""

    def __init__(self, address: str) -> None:
        if address != "auto":
            _require_listener(address)
        os.environ.update(_SETTINGS)
        for left in reversed(range(_ATTEMPTS)):
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="draftproof")
                return
            except ConnectionError:
                if not left:
                    raise
                ray.shutdown()

    def workers(self, device: str) -> int:
        """Return how many workers there is room for."""
        has: Mapping[str, float] = ray.cluster_resources()
        cpus = int(has.get("CPU", 0))
        return min(cpus, int(A_GPU * has.get("GPU", 0))) if device == "cuda" else cpus

    def requirements(self, device: str) -> str:
        """Return what one worker takes, and what the cluster has."""
        has: Mapping[str, float] = ray.cluster_resources()
        takes = f"a CPU and 1/{A_GPU} of a GPU" if device == "cuda" else "a CPU"
        return f"that is {takes}; the cluster has {has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs"

    def actor(self, device: str, spec: bytes) -> RayActor:
        """Return a new worker."""
        return RayActor(device, spec)

    def is_lost(self, error: BaseException) -> bool:
        """Return whether a worker is gone, and not the cluster, nor an error of its own."""
        return isinstance(error, RayActorError) and not error.actor_init_failed

    def is_own(self, error: BaseException) -> bool:
        """Return whether a worker raised, or could not be made."""
        return isinstance(error, RayTaskError | RayActorError)

    def look(self) -> None:
        """Raise, or hang, if the head is gone."""
        ray.cluster_resources()

    def leave(self) -> None:
        """Let everything go that was asked for."""
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Raise OSError where no process listens: Ray would wait for minutes, and say less."""
    host, port = endpoint(address)
    socket.create_connection((host, int(port)), _LISTENS_SECONDS).close()
