"""The configuration as it was seen, and what target and draft were made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from draftproof.engine.cache import PagedCache
from draftproof.engine.subject.observations import ObservationLog
from draftproof.properties.values.observed import ConfigSeen, DraftNeeds, IndexBytes, LayerKind
from draftproof.properties.values.trace import Key

_INDICES = (
    {"ids", "pending_tokens", "draft_tokens", "next_draft_token", "next_draft_tokens", "target_tokens", "lookback_ids"}
    | {"proposal", "choice"},
    {"positions", "visible"},
    {"slots"},
    {"page_table"},
    {"req_rows", "rows"},
    {"state_slots", "states"},
)
"""For each field of IndexBytes the last words of the names of its tensors: in memory, buffers and taps."""


class ConfigRecorder:
    """Reports config.*; `hidden_sizes` are the widths of what the draft was handed (0: nothing)."""

    def __init__(self, log: ObservationLog) -> None:
        self._log = log
        self._ran, self._is_complete = set[int](), False
        self.hidden_sizes: set[int] = set()

    def report_seen(self, fingerprints: Sequence[tuple[int, ...]], first: int) -> None:
        """Report fingerprints of the configuration at points `first`, first + 1, .. of the run."""
        for point, (crc, layers, *kinds) in enumerate(fingerprints, start=first):
            seen = ConfigSeen(crc, layers, tuple(map(LayerKind, kinds)))
            self._log.add("config.seen", Key(-1, 0, step=point), seen)

    def report_layer(self, layer: int, layer_type: str) -> None:
        """Report what ran for a layer of the target in the first prefill, whenever it did."""
        if not self._is_complete and layer not in self._ran:
            self._log.add("config.routing", Key(-1, 0, layer=layer), LayerKind[layer_type.upper()])
            self._ran.add(layer)

    def end_layers(self) -> None:
        """Note that the first prefill is over."""
        self._is_complete = True

    def report_index_bytes(self, dtypes: Iterable[tuple[str, torch.dtype]]) -> None:
        """Report how wide indices are, from the dtypes of tensors by name."""
        found = [(name.rpartition(".")[2], dtype.itemsize) for name, dtype in dtypes]
        least = [min((size for name, size in found if name in names), default=0) for names in _INDICES]
        self._log.add("config.index_bytes", Key(-1, 0), IndexBytes(*least))

    def report_draft(self, cache: PagedCache | None) -> None:
        """Report the width of the hidden states that the draft was handed, and the layers of its entries."""
        needs = DraftNeeds(max(self.hidden_sizes, default=0), len(cache.keys) if cache else 0)
        self._log.add("config.draft", Key(-1, 0), needs)
