"""Where an engine under test runs."""

from __future__ import annotations

from typing import Literal, get_args

from draftproof.properties.lib.errors import DraftproofError

Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = get_args(Device)


class DeviceError(DraftproofError, ValueError):
    """A device that there is not, or that this machine does not have."""


def present(device: str, option: str = "--device") -> Device:
    """Return the device if torch sees one of its kind. Raises DeviceError, which names the option."""
    if device not in DEVICES:
        raise DeviceError(f"invalid {option} {device!r}: expected {' or '.join(DEVICES)}")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise DeviceError(f"invalid {option} 'cuda': expected cpu, as torch sees no CUDA device here")
    return device
