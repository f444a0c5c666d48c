"""Which request owns which state slot. Slot 0 is reserved for padding."""

from __future__ import annotations

from collections.abc import Sequence


class StateSlots:
    """A stack of free state slots. `order` lists slots 1 .. in the order in which they are handed out."""

    def __init__(self, order: Sequence[int]) -> None:
        self._free, self._all = list(reversed(order)), frozenset(order)

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def check(self, used: Sequence[int]) -> None:
        """Raise RuntimeError unless free and used slots together are all slots, each once."""
        both = [*self._free, *used]
        if len(both) != len(self._all) or set(both) != self._all:
            raise RuntimeError(
                f"slots out of balance: {len(self._free)} free, {len(used)} used, {len(self._all)} in all"
            )
