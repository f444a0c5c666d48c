"""What a subject stored of entries in FP8, which a pass follows where rounding cannot tell (S-KV-6).

A rounding to three bits makes a difference of float32's last bits one of a sixteenth, and all that is computed from it
another. So the entries that a subject reports are read as it rounded them, but only between two neighbours that a
number near their middle may become.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from draftproof.properties.values.observed import Datum
from draftproof.properties.values.trace import Key

Slack = Callable[[int], float]
"""How far off a number at a position may be before it is rounded, relative to the largest of its entry (or to 1)."""
_CHANNELS = {"target": "commit.kv", "draft": "extend.kv"}
_LAST = 1 << 30


class Following:
    """Entries by request, round, layer and position, and the round of a request that passes are asked for now.

    `stored` are those that a subject reports, by channel, `texts` all tokens of each request, its prompt first.
    """

    def __init__(
        self, stored: Mapping[str, Mapping[Key, Datum]], texts: Sequence[tuple[int, ...]], slack: Slack
    ) -> None:
        self._texts, self.slack = texts, slack
        self._request, self._round = 0, _LAST
        self._reported: dict[tuple[str, int, int], dict[int, list[tuple[int, np.ndarray]]]] = {}
        for model, channel in _CHANNELS.items():
            for key, entry in sorted(stored.get(channel, {}).items()):
                if isinstance(entry, np.ndarray):
                    rows = self._reported.setdefault((model, key.request, key.layer), defaultdict(list))
                    rows[key.row].append((key.round, entry))

    def move(self, request: int, round_: int = _LAST) -> None:
        """Follow a request from now on, as its entries were after a round: an entry may be made again in a later."""
        self._request, self._round = request, round_

    def entries(self, model: str, tokens: tuple[int, ...], first: int) -> tuple[np.ndarray, ...]:
        """Return what is known of each layer of a model [m, entry], m as far as the text goes as `tokens` do.

        The token of entry 0 is number `first` of the text.
        """
        text = self._texts[self._request][first:]
        same = next((i for i, pair in enumerate(zip(tokens, text, strict=False)) if pair[0] != pair[1]), None)
        most = min(len(tokens), len(text)) if same is None else same
        layers = sorted(layer for of, request, layer in self._reported if (of, request) == (model, self._request))
        return tuple(self._layer(self._reported[model, self._request, layer], most) for layer in layers)

    def _layer(self, rows: dict[int, list[tuple[int, np.ndarray]]], most: int) -> np.ndarray:
        known = list[np.ndarray]()
        for position in range(most):
            made = [entry for round_, entry in rows.get(position, ()) if round_ <= self._round]
            if not made:
                break
            known.append(made[-1])
        return np.array(known)
