"""What a tracer checkpoint is, by the names that `tracer build` takes: its architecture and its draft."""

from __future__ import annotations

from pathlib import Path

from draftproof.properties.formats.checkpoint_config import read_fields
from draftproof.tracer.architectures import BACK_ENDS
from draftproof.tracer.program import Program


def architecture_of(checkpoint: Path) -> str:
    """Return the architecture, as qwen3.5; "" where config.json names none of these. Raises CheckpointError."""
    named = read_fields(checkpoint).get("architectures")
    found = (name for name, back in BACK_ENDS.items() if back.fields(back.sizes, 2)["architectures"] == named)
    return next(found, "")


def draft_name(program: Program, checkpoint: Path) -> str:
    """Return the draft, as eagle; "" where there is none. Raises CheckpointError.

    The program of an MTP layer is that of an EAGLE head: which of them it is only the weights say.
    """
    if program.small:
        return "standalone"
    if program.head is None:
        return ""
    if program.head.features:
        return "eagle3"
    back = BACK_ENDS.get(architecture_of(checkpoint))
    if back is None or back.mtp is None:
        return "eagle"
    from draftproof.reference.models.tensors import tensor_names

    prefix = back.mtp[0].format(len(program.layers))
    return "mtp" if any(name.startswith(prefix) for name in tensor_names(checkpoint)) else "eagle"
