"""How much work a launch was, counted in calls of kernels: eager ones, and those that a graph holds at each replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from draftproof.kernels.registry import CALLS
from draftproof.properties.values.observed import LaunchWork

_PARTS = (
    ("kv_write", "kv_move", "quantised_write", "fp8_write"),
    ("paged_attention", "windowed_attention", "quantised_attention", "fp8_attention"),
    (
        "conv_update",
        "gdn_update",
        "conv_verify",
        "conv_verify_tree",
        "gdn_verify",
        "gdn_verify_tree",
        "gdn_replay",
        "gdn_replay_tree",
        "gdn_flush",
        "gdn_checkpoint",
    ),
    ("state_scatter", "replay_commit", "replay_move", "replay_rewind"),
    (
        "greedy_choice",
        "best_choices",
        "sampled_choice",
        "rejection_choice",
        "apply_penalties",
        "greedy_accept",
        "accept_tree",
    ),
)
"""The kernels of each field of a LaunchWork."""


class WorkMeter:
    """Reads CALLS. What runs between two launches counts as work of the second: nothing runs unseen."""

    def __init__(self) -> None:
        self._before = _calls()

    def take(self) -> LaunchWork:
        """Return the work since the last call."""
        before, self._before = self._before, _calls()
        return LaunchWork(*_less(self._before, before))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out what runs meanwhile: an observer's own calls."""
        so_far = _less(_calls(), self._before)
        yield
        self._before = _less(_calls(), so_far)


def _calls() -> list[int]:
    """Return the calls of each field so far."""
    return [*(sum(map(CALLS.__getitem__, names)) for names in _PARTS), CALLS.total()]


def _less(calls: list[int], others: list[int]) -> list[int]:
    return [count - other for count, other in zip(calls, others, strict=True)]
