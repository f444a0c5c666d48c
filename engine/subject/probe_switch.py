"""What an engine is given in place of its observer, so that another one can come in the middle of its life."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from draftproof.engine.probes import Probes


class ProbeSwitch(Probes):
    """Passes every call on to an observer. The first observer's taps stay, because graphs have captured them."""

    def __init__(self, observer: Probes) -> None:
        super().__init__(observer.taps)
        self._observer = observer

    def turn_to(self, observer: Probes) -> None:
        """Pass calls on to another observer from now on."""
        self._observer = observer


def _passed_on(name: str) -> Callable[..., Any]:
    @wraps(getattr(Probes, name))
    def call(self: ProbeSwitch, *arguments: Any) -> Any:
        return getattr(self._observer, name)(*arguments)

    return call


for _name in vars(Probes):
    if not _name.startswith("_"):
        setattr(ProbeSwitch, _name, _passed_on(_name))
