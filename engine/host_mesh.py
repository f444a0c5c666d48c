"""Collectives of ranks that are processes of one CPU, over sockets, by way of rank 0.

On a CPU they take the place of gloo, whose threads take several times as long as the small batches of all ranks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

import numpy as np

_CONNECT_EVERY = 0.002


class HostMesh:
    """Connects the ranks that have the folder `meeting` in common; waits for all of them.

    Raises RuntimeError in every rank, now or in its next collective, where one has closed its end or has died.
    """

    def __init__(self, rank: int, size: int, meeting: Path) -> None:
        folder = os.open(meeting, os.O_DIRECTORY)
        try:
            # The path of a socket may have a hundred letters.
            address = f"/proc/self/fd/{folder}/hub"
            self._peers = [_connected(address, rank)] if rank else _accepted(address, size)
        finally:
            os.close(folder)
        self._is_hub, self._size = not rank, size

    def gather(self, everyone: np.ndarray, own: np.ndarray) -> None:
        """Fill everyone [ranks, ..] with what each rank has as its `own` [..]; both are contiguous."""
        try:
            if not self._is_hub:
                self._peers[0].sendall(_raw(own))
                _receive(self._peers[0], everyone)
                return
            everyone[0] = own
            for rank, peer in enumerate(self._peers, start=1):
                _receive(peer, everyone[rank])
            for peer in self._peers:
                peer.sendall(_raw(everyone))
        except OSError as error:
            self.close()
            raise RuntimeError(f"a rank has left a collective: {error}") from error

    def sum(self, parts: np.ndarray) -> None:
        """Set parts to the sum of what all ranks have there."""
        everyone = np.empty((self._size, *parts.shape), parts.dtype)
        self.gather(everyone, parts)
        np.sum(everyone, axis=0, dtype=parts.dtype, out=parts)

    def close(self) -> None:
        """Leave: all others learn of it."""
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()


def _accepted(address: str, size: int) -> list[socket.socket]:
    """Return the connections of all other ranks, in their order."""
    with socket.socket(socket.AF_UNIX) as hub:
        hub.bind(address)
        hub.listen(size)
        peers = dict[int, socket.socket]()
        number = np.empty(1, np.int64)
        while len(peers) < size - 1:
            peer, _ = hub.accept()
            _receive(peer, number)
            peers[int(number[0])] = peer
    return [peers[rank] for rank in range(1, size)]


def _connected(address: str, rank: int) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    while True:
        try:
            peer.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(_CONNECT_EVERY)
            continue
        peer.sendall(_raw(np.array([rank], np.int64)))
        return peer


def _raw(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _receive(peer: socket.socket, into: np.ndarray) -> None:
    rest = _raw(into)
    while rest:
        count = peer.recv_into(rest, 0, socket.MSG_WAITALL)
        if not count:
            raise ConnectionResetError("it has closed its end")
        rest = rest[count:]
