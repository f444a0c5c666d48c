"""Channels in words: what is reported on each, and what its numbers are called."""

from __future__ import annotations

from draftproof.properties.values.channels import CHANNELS

WHAT = {name: channel.what for name, channel in CHANNELS.items()}
NOUN = {
    "positions": "position ",
    "ids": "token ",
    "slots": "slot ",
    "bonus": "token ",
    "token": "token ",
    "length": "length ",
    "proposal": "token ",
    "parents": "row ",
    "choice": "token ",
    "visible": "positions up to ",
}
"""What a number of a channel is called, by the end of the channel's name."""
