"""A subject by the name of what makes it: "package.module:name"."""

from __future__ import annotations

import importlib
import inspect

from draftproof.properties.subject import Subject


def well_formed(name: str) -> bool:
    """Whether it reads package.module:name."""
    module, _, attribute = name.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def make(name: str, device: str) -> Subject:
    """Call what the name stands for, with the device if it takes one. Raises what importing and calling it raises."""
    module, _, attribute = name.partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    subject: Subject = factory(device=device) if _takes_device(factory) else factory()
    return subject


def _takes_device(factory: object) -> bool:
    try:
        taken = inspect.signature(factory).parameters.values()  # type: ignore[arg-type]  # TypeError if not callable
    except ValueError:
        return False
    return any(one.name == "device" or one.kind is inspect.Parameter.VAR_KEYWORD for one in taken)
