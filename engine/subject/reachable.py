"""What an engine keeps: everything that can be reached from it, except code and observers."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType

from torch import Tensor

from draftproof.engine.pages import PagePool
from draftproof.engine.prefix_cache import Node, PrefixCache
from draftproof.engine.runner import Buffers, GraphRunner
from draftproof.properties.values.observed import Footprint
from draftproof.properties.values.scenario import Scenario

_LEFT_OUT = (type, ModuleType, FunctionType, BuiltinFunctionType, partial, int, float, complex, str, bytes, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_BY_SIZE = (Buffers, GraphRunner)
"""What grows with every size of a batch that runs for the first time."""
_OF_CACHE = (PrefixCache, PagePool)
"""What a prefix cache keeps, and the pages that it does not: `pool.cached` and `pool.balance` are of these."""


def judged_otherwise(scenario: Scenario) -> tuple[type, ...]:
    """Return the kinds of objects that a second service may leave otherwise than the first one (S-BATCH-8)."""
    if scenario.schedule.prefix_cache:
        return _BY_SIZE + _OF_CACHE
    return _BY_SIZE if scenario.adaptive_steps else ()


def footprint(root: object, without: tuple[object, ...] = (), kinds: tuple[type, ...] = ()) -> Footprint:
    """Return how much can be reached from `root`, and not by way of `without` or of objects of these `kinds`.

    Sizes that Python rounds up, of lists and of dicts, are left out: what has come and gone leaves nothing here.
    """
    objects, entries, storages = 0, 0, dict[int, int]()
    for one in _reached(root, without, kinds):
        objects += 1
        if isinstance(one, Tensor):
            storage = one.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
        elif isinstance(one, _CONTAINERS):
            entries += len(one)
    return Footprint(objects, entries, sum(storages.values()))


def nodes_beyond(cache: PrefixCache) -> int:
    """Return how many nodes can be reached from a prefix cache that are not in its tree: nodes of evicted pages."""
    root_and_pages = 1 + sum(1 for _ in cache.nodes())
    return sum(isinstance(one, Node) for one in _reached(cache)) - root_and_pages


def _reached(root: object, without: tuple[object, ...] = (), kinds: tuple[type, ...] = ()) -> Iterator[object]:
    seen, stack = {id(one) for one in without}, [root]
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, _LEFT_OUT + kinds):
            continue
        seen.add(id(one))
        yield one
        if not isinstance(one, Tensor):
            # Asked for once, the dict of an object stays: else there would be more objects the next time.
            getattr(one, "__dict__", None)
            stack.extend(gc.get_referents(one))
