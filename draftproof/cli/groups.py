"""Groups of options that several commands share: a command takes what a group makes of its options as one argument."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


def with_option_groups(**groups: Callable[..., Any]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Return a decorator: each named parameter of a command is replaced by the parameters of the group's function.

    What that function returns is the argument that the command is called with.
    """

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        own = _parameters(command)
        parts = {name: _parameters(group) for name, group in groups.items()}
        signature = inspect.Signature([one for parameter in own for one in parts.get(parameter.name, [parameter])])

        @functools.wraps(command)
        def called(*words: Any, **options: Any) -> Result:
            bound = signature.bind(*words, **options)
            bound.apply_defaults()
            given = dict(bound.arguments)
            for name, parameters in parts.items():
                given[name] = groups[name](**{one.name: given.pop(one.name) for one in parameters})
            return command(**given)

        called.__signature__ = signature  # type: ignore[attr-defined]  # what typer reads
        called.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        return called

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = typing.get_type_hints(function, include_extras=True)
    return [one.replace(annotation=kinds[one.name]) for one in inspect.signature(function).parameters.values()]
