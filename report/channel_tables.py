"""The tables of channels and of the structs of their values, made from the code (tables.py writes them)."""

from __future__ import annotations

import inspect
import re
from enum import IntEnum
from typing import Any, get_args, get_origin, get_type_hints

from draftproof.properties.contracts.registry import ALL
from draftproof.properties.values import observed
from draftproof.properties.values.channel import PHASES, Channel
from draftproof.properties.values.channels import CHANNELS
from draftproof.report.definitions import linked
from draftproof.report.markdown import table

PHASE_TITLES = {
    "plan": "Who runs where, and how an engine is set up",
    "draft": "What a draft ran",
    "propose": "What was proposed and verified",
    "verify": "What a verify ran",
    "accept": "What was accepted and emitted",
    "commit": "What was committed",
    "extend": "What an extend of the draft ran",
    "control": "Adaptive steps and counters",
    "graph": "Launches",
    "pool": "Pools",
}
STRUCTS = tuple(one for one in vars(observed).values() if inspect.isclass(one) and issubclass(one, observed.Observed))[
    1:
]
ENUMS = tuple(one for one in vars(observed).values() if inspect.isclass(one) and issubclass(one, IntEnum))[1:]


def channels() -> str:
    """Return a table of channels for each phase, phase after phase in the order of first divergence."""
    return "\n\n".join(map(_of_phase, PHASES))


def structs() -> str:
    """Return every struct of a value with its fields, their types and what they mean."""
    return table(
        ("struct", "fields", "what they are"), ((f"`{one.__name__}`", _fields(one), _doc(one)) for one in STRUCTS)
    )


def enums() -> str:
    """Return the numbers that fields with names have."""
    rows = ((f"`{one.__name__}`", ", ".join(f"{int(each)} {each.name}" for each in one), _doc(one)) for one in ENUMS)
    return table(("name", "numbers", "what they are"), rows)


def type_name(kind: Any) -> str:
    """Return the type of a value as S-TRACE-1 calls it."""
    if kind == observed.Choice:
        return "choice"
    if kind == observed.Vector:
        return "vector"
    if get_origin(kind) is tuple:
        return f"tuple of {type_name(get_args(kind)[0])}"
    return f"`{kind.__name__}`" if issubclass(kind, observed.Observed | IntEnum) else kind.__name__


def _of_phase(phase: str) -> str:
    rows = (_row(one) for one in CHANNELS.values() if one.phase == phase)
    head = ("channel", "what it is", "key", "type", "value", "contracts")
    return f"### {PHASE_TITLES[phase]}\n\n{table(head, rows)}"


def _row(channel: Channel) -> tuple[str, ...]:
    judging = (one.name for one in ALL if channel.name in one.needs and not one.name.startswith("variant."))
    contracts = ", ".join(f"`{name}`" for name in judging) or "-"
    kind = type_name(channel.value)
    holds = linked(channel.holds.replace(kind, "its fields", 1) if channel.holds.startswith(kind) else channel.holds)
    shown = re.sub(r"`\w+`", r"[\g<0>](#structs)", kind)
    return f"`{channel.name}`", channel.what, linked(channel.at) or "-", shown, holds, contracts


def _fields(struct: type[observed.Observed]) -> str:
    hints = get_type_hints(struct)
    return ", ".join(f"`{name}`: {type_name(hints[name])}" for name in struct.__struct_fields__)


def _doc(of: type) -> str:
    text = " ".join((inspect.getdoc(of) or "").split())
    return linked(re.sub(r"docs/semantics/\w+\.md, ", "", text))
