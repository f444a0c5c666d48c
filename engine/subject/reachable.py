"""What an engine keeps: everything that can be reached from it, except code and observers."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType

from torch import Tensor

from draftproof.engine.engine import Engine
from draftproof.engine.pages import PagePool
from draftproof.engine.prefix_cache import Node, PrefixCache
from draftproof.engine.runner import Buffers, GraphRunner
from draftproof.properties.values.observed import Footprint, Holdings
from draftproof.properties.values.scenario import Scenario

_LEFT_OUT = (type, ModuleType, FunctionType, BuiltinFunctionType, partial, int, float, complex, str, bytes, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_BY_SIZE = (Buffers, GraphRunner)
"""What grows with every size of a batch that runs for the first time."""
_OF_CACHE = (PrefixCache, PagePool)
"""What a prefix cache keeps, and the pages that it does not: `pool.cached` and `pool.balance` are of these."""


class RequestId(int):
    """The number of a request, which is told apart from every other number that an engine keeps."""

    __slots__ = ()


def judged_otherwise(scenario: Scenario) -> tuple[type, ...]:
    """Return the kinds of objects that a second service may leave otherwise than the first one (S-BATCH-8)."""
    if scenario.schedule.prefix_cache:
        return _BY_SIZE + _OF_CACHE
    return _BY_SIZE if scenario.adaptive_steps else ()


def footprint(root: object, without: tuple[object, ...] = (), kinds: tuple[type, ...] = ()) -> Footprint:
    """Return how much can be reached from `root`, and not by way of `without` or of objects of these `kinds`.

    Sizes that Python rounds up, of lists and of dicts, are left out: what has come and gone leaves nothing here.
    """
    reached = _reached(root, without, kinds)
    entries = sum(len(one) for one in reached if isinstance(one, _CONTAINERS))
    return Footprint(len(reached), entries, _tensor_bytes(reached))


def kept(engines: Sequence[Engine], without: tuple[object, ...]) -> Holdings:
    """Return what engines keep while requests run, beside graphs and buffers, and not by way of `without`."""
    held, tensor_bytes, nodes = list[int](), 0, 0
    for engine in engines:
        reached = _reached(engine, without, _BY_SIZE)
        held += {int(one) for one in reached if isinstance(one, RequestId)}
        tensor_bytes += _tensor_bytes(reached)
        nodes += _beyond(engine.scheduler.cache, reached)
    return Holdings(tuple(sorted(held)), tensor_bytes, nodes)


def _tensor_bytes(reached: Iterable[object]) -> int:
    storages = (one.untyped_storage() for one in reached if isinstance(one, Tensor))
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def nodes_beyond(cache: PrefixCache) -> int:
    """Return how many nodes can be reached from a prefix cache that are not in its tree: nodes of evicted pages."""
    return _beyond(cache, _reached(cache))


def _beyond(cache: PrefixCache, reached: Iterable[object]) -> int:
    root_and_pages = 1 + sum(1 for _ in cache.nodes())
    return sum(isinstance(one, Node) for one in reached) - root_and_pages


class _IsFollowed(dict[type, bool]):
    """Whether objects of a type are part of what is reached, for types that have been met."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self._left_out = _LEFT_OUT + kinds

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, RequestId) or not issubclass(kind, self._left_out)
        return self[kind]


def _reached(root: object, without: tuple[object, ...] = (), kinds: tuple[type, ...] = ()) -> list[object]:
    is_followed, new = _IsFollowed(kinds), [root]
    seen, reached = {id(root), *map(id, without)}, [root]
    while new:
        for one in new:
            if type(one).__dictoffset__:
                # Asked for once, the dict of an object stays: else there would be more objects the next time.
                getattr(one, "__dict__", None)
        referents, new = gc.get_referents(*[one for one in new if not isinstance(one, Tensor)]), []
        for one in referents:
            if is_followed[type(one)] and id(one) not in seen:
                seen.add(id(one))
                new.append(one)
        reached += new
    return reached
