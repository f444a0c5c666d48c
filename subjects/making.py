"""Make a subject by its name, on either side of the transport."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Literal, get_args, get_origin, get_type_hints

from draftproof.properties.lib.errors import ConditionError, DraftproofError
from draftproof.properties.lib.names import did_you_mean, is_factory_name
from draftproof.properties.values.subject import Subject

GROUP = "draftproof.subjects"
"""The entry points that give subjects a name."""
YesOrNo = Literal["yes", "no"]
ALWAYS = ("device",)
"""Settings that are passed on to whatever takes them; any other must be taken."""


class SubjectNameError(DraftproofError, ValueError):
    """A name that stands for no subject, or settings that the subject does not take; the message says what is known."""


class UnknownSubjectError(SubjectNameError):
    """A name that is not registered in this Python; `known` are the registered names."""

    def __init__(self, name: str, known: Mapping[str, str]) -> None:
        self.known = tuple(sorted(known))
        names = ", ".join(self.known) or "none is registered here"
        super().__init__(
            f"invalid subject {name!r}: expected package.module:name, or a registered name"
            f" ({names}){did_you_mean(name, known)}"
        )


class EngineMissingError(SubjectNameError):
    """A subject whose engine is not installed in this Python; `name` is the module that is not there."""

    def __init__(self, subject: str, name: str) -> None:
        self.name = name
        super().__init__(
            f"invalid --subject {subject!r}: expected a Python in which {name} is installed; --python ENV/bin/python"
            " names another"
        )


class SettingError(ConditionError, ValueError):
    """A setting with a value that the subject does not take; the message says what is expected."""

    def __init__(self, name: str, value: str, expected: str) -> None:
        super().__init__(f"invalid --set {name}={value}: expected {expected}")


def known() -> dict[str, str]:
    """Return name -> "package.module:name" of every subject that an installed distribution registers."""
    return {one.name: one.value for one in entry_points(group=GROUP)}


def resolve_name(name: str) -> str:
    """Return "package.module:name" for a name. Raises UnknownSubjectError."""
    if is_factory_name(name):
        return name
    registered = known()
    if name not in registered:
        raise UnknownSubjectError(name, registered)
    return registered[name]


def made(name: str, settings: Mapping[str, str]) -> Subject:
    """Import what the name stands for, and call it with the settings.

    A setting that is annotated with a Literal is one of its values. Raises SubjectNameError, SettingError and
    ImportError, and whatever the call raises.
    """
    module, _, attribute = resolve_name(name).partition(":")
    imported = importlib.import_module(module)
    if not hasattr(imported, attribute):
        raise SubjectNameError(
            f"invalid --subject {name!r}: expected a module and a name in it: module {module!r} has no attribute"
            f" {attribute!r}"
        )
    factory: Callable[..., Subject] = getattr(imported, attribute)
    for needed in getattr(factory, "requires", ()):
        if importlib.util.find_spec(needed) is None:
            raise EngineMissingError(name, needed)
    return called(name, factory, settings)


def called(name: str, factory: Callable[..., Subject], settings: Mapping[str, str]) -> Subject:
    """Return what a factory makes of the settings, under the name that it has in messages. Raises as `made` does."""
    taken = _taken(name, factory, settings)
    allowed = _allowed(factory)
    for one, value in taken.items():
        if one not in ALWAYS and value not in allowed.get(one, (value,)):
            raise SettingError(one, value, " or ".join(allowed[one]))
    return factory(**taken)


def _allowed(factory: Callable[..., Subject]) -> dict[str, tuple[str, ...]]:
    """Return the values of every setting that has a Literal of them as its type."""
    function: Any = factory.__init__ if inspect.isclass(factory) else factory
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # types that are imported for a type checker only, or of no function
        return {}
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def whole(name: str, value: str, least: int, most: int, step: int = 1) -> int:
    """Return the whole number that a setting is, `step` apart from the least on. Raises SettingError."""
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else least - 1
    if number not in range(least, most + 1, step):
        between = "" if step == 1 else f", {least + step}"
        raise SettingError(name, value, f"a whole number, {least}{between} .. {most}")
    return number


def _taken(name: str, factory: Callable[..., Subject], settings: Mapping[str, str]) -> dict[str, str]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # built in: it has no signature
        parameters = inspect.Signature().parameters.values()
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    takes = [one.name for one in parameters if one.kind is not inspect.Parameter.POSITIONAL_ONLY]
    for other in () if takes_any else settings.keys() - {*takes, *ALWAYS}:
        own = ", ".join(one for one in takes if one not in ALWAYS) or "none"
        raise SubjectNameError(f"invalid setting {other!r} of subject {name!r}: expected one that it takes, {own}")
    if lacking := [one.name for one in parameters if _is_required(one) and one.name not in settings]:
        values = {"url": ("URL",), **_allowed(factory)}
        given = " and ".join(
            f"{'--url ' if one == 'url' else f'--set {one}='}{'|'.join(values.get(one, ('VALUE',)))}" for one in lacking
        )
        raise SubjectNameError(f"invalid subject {name!r} without {', '.join(lacking)}: expected {given}")
    return {one: value for one, value in settings.items() if takes_any or one in takes}


def _is_required(parameter: inspect.Parameter) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return parameter.kind in kinds and parameter.default is inspect.Parameter.empty and parameter.name not in ALWAYS
