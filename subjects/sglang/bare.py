"""Objects of a release, made without their constructors."""

from __future__ import annotations

from functools import cache
from types import MemberDescriptorType
from typing import Any

from draftproof.subjects.wheels.stubs import stub_of


class StubAttributes:
    """An object with the given attributes; any other is a stub, which is false."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        return stub_of("unset", name)


class NoneAttributes:
    """An object with the given attributes; any other is None, like an option that was not set."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def make_without_init(kind: type, **attributes: Any) -> Any:
    """Return an instance of a class without running its constructor, with the given attributes.

    An attribute that the class does not define and that was not given is a stub.
    """
    made: Any = object.__new__(_open(kind))
    for name, value in attributes.items():
        slot = getattr(kind, name, None)
        if isinstance(slot, MemberDescriptorType):
            slot.__set__(made, value)
        else:
            vars(made)[name] = value
    return made


@cache
def _open(kind: type) -> type:
    return type(kind.__name__, (kind,), {"__getattr__": StubAttributes.__getattr__, "__module__": kind.__module__})
