"""How a wrong value relates to the right one, as data; report/relations.py has the words.

A verify row is counted from 0 in its round; positions, rounds and layers are numbers as in the channels' keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal

import msgspec

from draftproof.properties.lib.base import Value

Part = Literal["output", "read only", "around", "outside"]
"""Memory of a kernel's argument: what it writes, what it only reads, what lies around and between the elements."""


def _tag(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class _Relation(Value, frozen=True, kw_only=False, tag_field="kind", tag=_tag):
    """`identifying` names what tells two failures apart besides the kind: never a number."""

    identifying: ClassVar[tuple[str, ...]] = ()

    @property
    def direction(self) -> str:
        """The word for the sign of `by`, in a relation that has one."""
        return direction(getattr(self, "by", 0))

    @property
    def general(self) -> str:
        """The relation without its numbers: a thousand hits of one bug have one."""
        values = ((name, getattr(self, name)) for name in self.identifying)
        return self._words(name if value is True else str(value) for name, value in values if value)

    @property
    def exact(self) -> str:
        """The relation with all its numbers."""
        return self._words(_leaves(list(msgspec.to_builtins(self).values())[1:]))

    def _words(self, values: Iterable[str]) -> str:
        return " ".join((_tag(type(self).__name__).replace("_", " "), *values))


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield str(value)


class Missing(_Relation, frozen=True):
    """Nothing was reported."""


class Surplus(_Relation, frozen=True):
    """Something was reported where nothing belongs."""


class Different(_Relation, frozen=True):
    """Nothing is known but that the values differ."""


class Zero(_Relation, frozen=True):
    """All bits of the vector are zero."""


class Poison(_Relation, frozen=True):
    """The vector has the contents of memory that was never written, or a NaN or an infinity."""


class Moved(_Relation, frozen=True):
    """A page or a slot that a request keeps was exchanged for another one."""


class OutOfRange(_Relation, frozen=True):
    """An index outside of what it indexes."""


class OutOfOrder(_Relation, frozen=True):
    """Right things in the wrong order."""


class SharedPage(_Relation, frozen=True):
    """A page stands twice in one page table."""


class Unowned(_Relation, frozen=True):
    """Memory of a pool that no live request owns."""


class OutsidePools(_Relation, frozen=True):
    """Memory that belongs to no pool."""


class GuardOverwritten(_Relation, frozen=True):
    """Bytes between the tensors of an arena changed."""


class NotGreedy(_Relation, frozen=True):
    """The text is not what plain greedy decoding gives: of a real model token number `token`, `below` the best.

    None: a grammar or a minimum of tokens does not allow the token at all.
    """

    token: int = -1
    below: float | None = 0.0

    @property
    def exact(self) -> str:
        """Return it without its numbers: which token it is changes with every prompt."""
        return self.general


class OffBy(_Relation, frozen=True):
    """The right number plus `by`."""

    by: int
    identifying = ("direction",)


class Resized(_Relation, frozen=True):
    """The right numbers with `by` more at the end, or fewer."""

    by: int
    identifying = ("change",)

    @property
    def change(self) -> str:
        return "longer" if self.by > 0 else "shorter"


class Stale(_Relation, frozen=True):
    """The value of an earlier round, or of an earlier step of the same round; a state may be so `in_part`."""

    of: Literal["round", "step"]
    number: int
    in_part: bool = False


class TooEarly(_Relation, frozen=True):
    """The value of a later round or step; a state may be so `in_part`."""

    of: Literal["round", "step"]
    number: int
    in_part: bool = False
    identifying = ("of", "in_part")


class OtherLayer(_Relation, frozen=True):
    """The value of another layer."""

    layer: int


class OtherRow(_Relation, frozen=True):
    """The value, or the memory, of another request or (`request` -1) of another row of the same one."""

    request: int = -1
    row: int = -1


class SlotOf(_Relation, frozen=True):
    """The KV slot of a position of the same request."""

    position: int


class StateSlotOf(_Relation, frozen=True):
    """The state slot of a request of this launch; `row` >= 0: the intermediate state after its verify row."""

    request: int
    row: int = -1
    identifying = ("memory",)

    @property
    def memory(self) -> str:
        return "state" if self.row < 0 else "intermediate state"


class OtherState(_Relation, frozen=True):
    """The recurrent state after verify row `row` of another request or (`request` -1) of the same one, `by` rows off.

    `earlier_round`: it was left there by an earlier launch.
    """

    row: int
    by: int = 0
    request: int = -1
    earlier_round: bool = False
    identifying = ("whose", "earlier_round")

    @property
    def whose(self) -> str:
        return "another request" if self.request >= 0 else direction(self.by)


class ChoiceOf(_Relation, frozen=True):
    """The target's choice after another verify row, `by` rows off."""

    row: int
    by: int
    identifying = ("direction",)


class WrongFeature(_Relation, frozen=True):
    """One of `count` features of a context entry is wrong: it is `source`'s, the last hidden state, or unknown."""

    number: int
    count: int
    found: Literal["unknown", "feature", "last"] = "unknown"
    source: int = -1
    identifying = ("found",)


class WrongMatch(_Relation, frozen=True):
    """An n-gram match that is `lost` or `invented`, or has a `length` or `place` that is off `by` tokens."""

    of: Literal["lost", "invented", "length", "place"]
    by: int = 0
    identifying = ("of", "direction")

    @property
    def direction(self) -> str:
        return super().direction if self.of == "place" else ""


class StridePair(Value, frozen=True):
    """A stride as it is and as it must be, in rows, with the names of those sizes ("" if they have none)."""

    got: int
    expected: int
    got_name: str = ""
    expected_name: str = ""


class VerifyRow(Value, frozen=True):
    """A verify row of a request, or (`request` -1) of a place of the batch that no request has."""

    row: int
    request: int
    place: int = -1


class Stride(_Relation, frozen=True):
    """Intermediate states lie, or are looked for, at a wrong stride, which explains `explained` of `wrong` states.

    The row that shows it was written where `belongs` does, or reads what `source` has, or both;
    `how` that came there ("": it reads nothing).
    """

    pitch: StridePair
    row: VerifyRow
    explained: int
    wrong: int
    belongs: VerifyRow | None = None
    source: VerifyRow | None = None
    how: Literal["", "lies", "written", "earlier"] = ""


class TensorLocation(Value, frozen=True):
    """Somewhere in the allocation of a tensor: the row of an index, what begins `inside` one, or memory `around`."""

    kind: Literal["row", "inside", "around"]
    index: tuple[int, ...]


class WrongStride(_Relation, frozen=True):
    """A stride in rows (`dimension` -1), or in elements of a dimension."""

    pitch: StridePair
    dimension: int = -1


class SwappedStrides(_Relation, frozen=True):
    """The strides of two dimensions were taken for one another."""

    first: int
    second: int


class Shifted(_Relation, frozen=True):
    """All of `rows` lie `by` elements too far."""

    rows: int
    by: int


Cause = WrongStride | SwappedStrides | Shifted


class RowElsewhere(_Relation, frozen=True):
    """A kernel left the row of the index `belongs` at `at`."""

    at: TensorLocation
    belongs: tuple[int, ...]
    cause: Cause | None = None


class RowTaken(_Relation, frozen=True):
    """A kernel's row `index` has the contents of `got` of another argument instead of `expected`."""

    index: tuple[int, ...]
    argument: str
    got: TensorLocation
    expected: TensorLocation
    cause: Cause | None = None


class RowUnwritten(_Relation, frozen=True):
    """A kernel did not write a row that it must."""

    index: tuple[int, ...]


class RowOverwritten(_Relation, frozen=True):
    """A kernel wrote a row that must stay as it was."""

    index: tuple[int, ...]


class InMemory(_Relation, frozen=True):
    """Nothing is known but which memory of a kernel's argument is wrong."""

    place: Part
    identifying = ("place",)


def off_by(expected: int, got: int) -> OffBy:
    """Return the relation of two different numbers."""
    return OffBy(got - expected)


def direction(by: int) -> str:
    """Return the word for the sign of a difference."""
    return "ahead" if by > 0 else "behind"


_Plain = Missing | Surplus | Different | Zero | Poison | Moved | OutOfRange | OutOfOrder
PlainRelation = _Plain | SharedPage | Unowned | OutsidePools | GuardOverwritten | NotGreedy
KernelRelation = RowElsewhere | RowTaken | RowUnwritten | RowOverwritten | InMemory
_Numbered = OffBy | Resized | Stale | TooEarly | OtherLayer | OtherRow | SlotOf | StateSlotOf | OtherState | ChoiceOf
Relation = PlainRelation | _Numbered | WrongFeature | WrongMatch | Stride | KernelRelation
