"""Small probes of every draft and paged memory for them.

`N` layers, `L` lanes of the target, `B` rows, `W` columns of a block, `P` page size. A request is a row of the table.
"""

from typing import Any

import msgspec
import numpy as np
import torch

from draftproof.engine.cache import PagedCache
from draftproof.engine.models.base import AttentionMetadata, CacheShape
from draftproof.engine.models.probe import ProbeParts, ProbeShape, ProbeTarget
from draftproof.engine.models.probe_dflash import ProbeBlock
from draftproof.engine.models.probe_entries import ProbeChain
from draftproof.properties.values import drafts
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import draft_weights, target_weights
from tests.naive_probe import naive_block

TARGET = ProbeModel(
    seed=7, layers=3, heads=4, kv_heads=2, key_dim=2, value_dim=3, lanes=5, vocab=11, logit_bits=20, agreement=256
)
SIZES = {"seed": 3, "heads": 2, "kv_heads": 1, "key_dim": 3, "value_dim": 2, "lanes": 4}
MTP = drafts.Mtp(layers=3, **SIZES)
DFLASH = drafts.DFlash(layers=2, features=(2, 0), **SIZES)
STANDALONE = drafts.Standalone(layers=2, **SIZES)
PAGE, COLUMNS, ROWS = 3, 6, 3
POISON = 0x7FF8DEAD7FF8DEAD
TEXT = (1, 4, 4, 9, 0, 2, 10, 3)


def tensors(weights: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array.view("int64").copy()) for name, array in weights.items()}


def shape(spec: ProbeModel | drafts.ProbeDraft) -> ProbeShape:
    return ProbeShape(spec.heads, spec.kv_heads, spec.key_dim, spec.value_dim)


def target() -> ProbeTarget:
    return ProbeTarget(tensors(target_weights(TARGET)), {"num_hidden_layers": 3}, shape(TARGET), None, 20, 256)


def parts(spec: drafts.ProbeDraft) -> ProbeParts:
    config = {"num_hidden_layers": 3, "draft": msgspec.structs.asdict(spec)}
    return ProbeParts(tensors(draft_weights(spec, TARGET)), shape(spec), config, 20)


def chain_spec(**form: Any) -> drafts.Mtp:
    return msgspec.structs.replace(MTP, **form)


def chain(**form: Any) -> ProbeChain:
    return ProbeChain(parts(chain_spec(**form)))


def block() -> ProbeBlock:
    return ProbeBlock(parts(DFLASH))


def cache_of(sizes: CacheShape) -> PagedCache:
    """Pools of POISON, and a table of pages in no order; page 0 is nobody's."""
    slots = PAGE * (1 + ROWS * COLUMNS)
    pools = [
        tuple(torch.full((slots, sizes.kv_heads, dim), POISON) for _ in range(sizes.layers))
        for dim in (sizes.key_dim, sizes.value_dim)
    ]
    order = torch.randperm(ROWS * COLUMNS, generator=torch.Generator().manual_seed(0)) + 1
    return PagedCache(pools[0], pools[1], order.view(ROWS, COLUMNS), PAGE)


def where_of(cache: PagedCache, places: list[tuple[int, int]], visible: list[int] | None = None) -> AttentionMetadata:
    """(row, position) of every token; row -1 belongs nowhere: row 0, slot 0."""
    slots = [int(cache.page_table[row, p // PAGE]) * PAGE + p % PAGE if row >= 0 else 0 for row, p in places]
    rows = [max(row, 0) for row, _ in places]
    seen = None if visible is None else torch.tensor(visible)
    packed = torch.tensor([rows, [p for _, p in places], slots], dtype=torch.int64)
    return AttentionMetadata(*(part.clone() for part in packed), None, seen)


def run_of(row: int, *span: int) -> list[tuple[int, int]]:
    return [(row, p) for p in range(*span)]


def unsigned(x: torch.Tensor) -> list:
    return x.numpy().view(np.uint64).tolist()


def entry(cache: PagedCache, layer: int, row: int, position: int) -> list[int]:
    """Key and value of a position, side by side."""
    slot = where_of(cache, [(row, position)]).slot_mapping
    return [number for pool in (cache.keys, cache.values) for number in unsigned(pool[layer][slot].flatten())]


def numbers(seed: int, *sizes: int) -> torch.Tensor:
    return torch.randint(-(1 << 63), (1 << 63) - 1, sizes, generator=torch.Generator().manual_seed(seed))


class Request:
    """A context of features, the entries of which are in a cache, and the pending token."""

    def __init__(self, row: int, context: int, drafts: int) -> None:
        self.row, self.context, self.drafts = row, context, drafts
        self.features = numbers(row, context, 2 * TARGET.lanes)
        self.ids = [TEXT[row], *[TARGET.vocab] * drafts]

    def naive(self) -> tuple[list, list, list]:
        """(states of the block's rows, their logits, entries by layer and position)."""
        return naive_block(DFLASH, TARGET, self.ids, unsigned(self.features))


class Batch:
    """Requests whose contexts are appended, in two chunks, and the inputs of a block of W columns for them."""

    def __init__(self, model: ProbeBlock, requests: list[Request], width: int) -> None:
        self.cache, self.requests = cache_of(model.cache_shape), requests
        for cut in (slice(0, 2), slice(2, None)):
            features = torch.cat([request.features[cut] for request in requests])
            places = [p for request in requests for p in run_of(request.row, request.context)[cut]]
            model.append(features, where_of(self.cache, places), self.cache)
        places, visible = [], []
        self.ids = torch.full((len(requests), width), model.mask)
        for i, request in enumerate(requests):
            end = request.context + request.drafts
            self.ids[i, 0] = request.ids[0]
            places += run_of(request.row, request.context, end + 1) + [(-1, 0)] * (width - 1 - request.drafts)
            visible += [end] * width
        self.where = where_of(self.cache, places, visible)
