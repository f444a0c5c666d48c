"""How much work a launch was, counted in calls of kernels: eager ones, and those that a graph holds at each replay."""

from __future__ import annotations

from collections import Counter
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
        self._before = Counter(CALLS)

    def take(self) -> LaunchWork:
        """Return the work since the last call."""
        calls, self._before = CALLS - self._before, Counter(CALLS)
        counts = [sum(calls[name] for name in names) for names in _PARTS]
        return LaunchWork(*[*counts, calls.total()])

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out what runs meanwhile: an observer's own calls."""
        start = Counter(CALLS)
        yield
        self._before.update(CALLS - start)
