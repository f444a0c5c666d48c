"""The channel table: every observable that a subject may report, in the order of first divergence."""

from __future__ import annotations

from draftproof.properties.values.channel import PHASES, Channel
from draftproof.properties.values.channels_of_drafts import OF_PROPOSING
from draftproof.properties.values.channels_of_engine import OF_ENGINE
from draftproof.properties.values.channels_of_launches import LAUNCH_CHANNELS
from draftproof.properties.values.channels_of_rounds import OF_ROUNDS
from draftproof.properties.values.drafts import DRAFT_KINDS

_TABLE = (*LAUNCH_CHANNELS, *OF_ENGINE, *OF_PROPOSING, *OF_ROUNDS)
_OF_KINDS = tuple(channel for kind in DRAFT_KINDS for channel in kind.channels)
CHANNELS: dict[str, Channel] = {
    channel.name: channel for channel in sorted((*_OF_KINDS, *_TABLE), key=lambda channel: PHASES.index(channel.phase))
}
START_CHANNELS = frozenset({"pool.kept"})
"""Channels that are said before the first step, too, as of round -1."""
DISAGGREGATION_CHANNELS = frozenset(channel.name for channel in _TABLE if channel.name.startswith("disaggregation."))
OVERLAP_CHANNELS = frozenset(channel.name for channel in _TABLE if channel.name.startswith("overlap."))
TAPPED = frozenset(channel.name for channel in _TABLE if channel.is_tapped)
