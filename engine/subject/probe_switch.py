"""What an engine is given in place of its observer, so that another one can come in the middle of its life."""

from __future__ import annotations

from draftproof.engine.probes import Probes

_CALLS = tuple(name for name in vars(Probes) if not name.startswith("_"))


class ProbeSwitch(Probes):
    """Has the callbacks of an observer. The first observer's taps stay, because graphs have captured them."""

    def __init__(self, observer: Probes) -> None:
        super().__init__(observer.taps)
        self.turn_to(observer)

    def turn_to(self, observer: Probes) -> None:
        """Let calls go to another observer from now on."""
        vars(self).update({name: getattr(observer, name) for name in _CALLS})
