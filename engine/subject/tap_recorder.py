"""What taps recorded inside of launches: the inputs and choices of target and draft, row by row.

`W` verify width, `T` packed prompt tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.stages import Commit, DecodeRow, Launch, PrefillRow
from draftproof.engine.subject.observations import ObservationLog, vectors
from draftproof.engine.subject.taps import Tapped
from draftproof.properties.values.observed import Choice, Datum, DiscardedRow, PackedRow
from draftproof.properties.values.trace import Key
from draftproof.properties.values.tree import Tree

Columns = dict[str, list[Any]]
"""Last word of a channel -> its value for every packed token."""


class TapRecorder:
    """Reports draft.*, verify.* and extend.*.

    `lookback` is how many entries an extend computes again; a `tree` has several entries a draft step.
    """

    def __init__(self, log: ObservationLog, lookback: int, tree: Tree | None = None) -> None:
        self._log, self._lookback, self._tree = log, lookback, tree
        self._extend: tuple[dict[int, Key], Tapped, int] = ({}, {}, 0)
        self._prompt_entries: dict[tuple[str, Key], Datum] = {}

    def report_prefill(self, batch: tuple[PrefillRow, ...], tapped: Tapped) -> None:
        """Report the choice after each prompt that ends here."""
        if tapped:
            for place, (row, choice) in enumerate(zip(batch, _choices("prefill", "choice", tapped), strict=True)):
                if row.tail < 0:
                    self._log.add("verify.choice", Key(row.request.id, row.round, row=0), choice)
                    if row.request.grammar or row.minimum:
                        self._add_allowed(Key(row.request.id, row.round), tapped["prefill.excluded", -1][place][None])

    def report_draft(self, key: Key, batch: tuple[DecodeRow, ...], tapped: Tapped, width: int) -> None:
        """Report the steps or the block of a proposal, and which of their rows are surplus or padding."""
        if self._tree:
            self._beams(key, batch, tapped, self._tree.topk)
            return
        self._steps(batch, tapped, width)
        self._block(batch, tapped, width)
        own = [row.num_drafts + int(("draft.hidden", 1) not in tapped) for row in batch]
        steps = [row for step in range(1, width) for row in _discarded("draft", tapped, own, step=step, first=step)]
        blocks = [row.num_drafts + 1 if row.num_drafts else 0 for row in batch]
        self._add_discarded("draft", key, (*steps, *_discarded("block", tapped, blocks, width)))

    def _steps(self, batch: tuple[DecodeRow, ...], tapped: Tapped, width: int) -> None:
        """Report a chain's steps: an EAGLE head has one fewer than a row's drafts, a standalone draft as many."""
        for step in range(1, width):
            columns = _columns("draft", tapped, step)
            last = step + int("hidden_in" in columns)
            for index, row in enumerate(batch):
                if last <= row.num_drafts:
                    self._add_row("draft.step", Key(int(row.request.id), row.round, step=step), columns, index)

    def _beams(self, key: Key, batch: tuple[DecodeRow, ...], tapped: Tapped, topk: int) -> None:
        """Report the entries of each step of a tree, one for each beam; rows number the entries of a step in order."""
        discarded = list[DiscardedRow]()
        for step in sorted(step for tap, step in tapped if tap == "draft.positions"):
            columns = _columns("draft", tapped, step)
            columns["candidates"] = [tuple(one) for one in tapped["draft.candidates", step].tolist()]
            live = [topk if step < row.num_drafts else 0 for row in batch]
            for index, row in enumerate(batch):
                for beam in range(live[index]):
                    at = Key(int(row.request.id), row.round, step=step, row=beam)
                    self._add_row("draft.beam", at, columns, index * topk + beam)
            rows = _discarded("draft", tapped, live, topk, step)
            discarded += [replace(row, column=(step - 1) * topk + row.column) for row in rows]
        self._add_discarded("draft", key, discarded)

    def _block(self, batch: tuple[DecodeRow, ...], tapped: Tapped, width: int) -> None:
        columns = _columns("block", tapped)
        for index, row in enumerate(batch):
            for place in range(row.num_drafts + 1 if row.num_drafts else 0):
                self._add_row("draft.block", Key(row.request.id, row.round, row=place), columns, index * width + place)

    def report_verify(self, key: Key, batch: tuple[DecodeRow, ...], tapped: Tapped, width: int) -> None:
        """Report the rows that were verified, of W a request those that it has, and those that are thrown away."""
        if not tapped:
            return
        columns = {
            **{name: tapped[f"verify.{name}", -1].flatten().tolist() for name in ("ids", "positions", "slots")},
            "hidden": vectors(tapped["verify.hidden", -1]),
            "choice": _choices("verify", "choice", tapped),
        }
        parents = tapped["verify.parents", -1].tolist() if self._tree else ()
        for index, row in enumerate(batch):
            for place in range(1, row.num_drafts + 1 if parents else 0):
                parent = parents[index][place - 1]
                self._log.add("verify.parents", Key(row.request.id, row.round, row=place), parent)
            for place in range(row.num_drafts + 1):
                self._add_row("verify", Key(int(row.request.id), row.round, row=place), columns, index * width + place)
            if row.request.grammar or row.minimum:
                excluded = tapped["verify.excluded", -1][index][: row.num_drafts + 1]
                self._add_allowed(Key(row.request.id, row.round), excluded)
        live = [row.num_drafts + 1 for row in batch]
        if ("packed.slots", -1) not in tapped:
            self._add_discarded("verify", key, _discarded("verify", tapped, live, width))

    def report_packed(self, key: Key, launch: Launch, tapped: Tapped) -> None:
        """Report the rows of a packed launch as they ran, and the tokens behind the last of them."""
        if ("packed.num_tokens", -1) not in tapped:
            return
        counts, positions, slots = (
            tapped[f"packed.{name}", -1].tolist() for name in ("num_tokens", "positions", "slots")
        )
        rows, offset = list[PackedRow](), 0
        for (request, verifies), count in zip(launch.packed, counts, strict=False):
            ran = slots[offset : offset + count]
            rows.append(PackedRow(int(request), int(verifies), offset, count, positions[offset], tuple(ran)))
            offset += count
        self._log.add("verify.packed", key, tuple(rows))
        self._add_discarded("verify", key, _discarded("packed", tapped, [1] * launch.tokens))

    def hold_extend(self, key: Key, tapped: Tapped, width: int, layer: int) -> None:
        """Keep what an extend launch recorded until all layers have run and its requests are known."""
        keys, before, _ = self._extend if layer else ({}, {}, 0)
        self._extend = (keys | {layer: key}, before | tapped, width)

    def report_extend(self, commits: tuple[Commit, ...]) -> None:
        """Report the entries of the requests that go on, and which rows are surplus or padding."""
        keys, tapped, width = self._extend
        self._extend = ({}, {}, 0)
        entries = width + self._lookback
        live = [commit.seq_len - max(0, commit.seq_len_before - self._lookback) for commit in commits]
        for layer, launch in keys.items():
            step = layer if ("extend.slots", layer) in tapped else -1
            self._add_discarded("extend", launch, _discarded("extend", tapped, live, entries, step))
        for layer, columns in _layers("extend", tapped):
            proposals = columns.pop("proposal", None)
            for index, commit in enumerate(commits):
                for row, position in enumerate(range(max(0, commit.seq_len_before - self._lookback), commit.seq_len)):
                    key = Key(int(commit.request), commit.round, layer=layer, row=position)
                    self._add_row("extend", key, columns, index * entries + row)
                if proposals:
                    key = Key(commit.request, commit.round, layer=layer)
                    self._log.add("extend.proposal", key, proposals[index])

    def report_prompt(self, batch: tuple[PrefillRow, ...], tapped: Tapped) -> None:
        """Report entries of a prompt once its last chunk has run: a later chunk computes some of them again."""
        for layer, columns in _layers("prompt", tapped):
            proposals, at = columns.pop("proposal", None), 0
            for index, row in enumerate(batch):
                for position in range(max(row.cached, row.start - self._lookback), row.end):
                    key = Key(int(row.request.id), row.round, layer=layer, row=position)
                    for channel, values in columns.items():
                        self._prompt_entries[f"extend.{channel}", key] = values[at]
                    at += 1
                if proposals:
                    at_layer = Key(row.request.id, row.round, layer=layer)
                    self._prompt_entries["extend.proposal", at_layer] = proposals[index]
        for row in batch:
            if row.tail < 0:
                for place in [place for place in self._prompt_entries if place[1].request == row.request.id]:
                    self._log.add(*place, self._prompt_entries.pop(place))

    def _add_discarded(self, stage: str, key: Key, rows: Iterable[DiscardedRow]) -> None:
        if found := tuple(sorted(rows)):
            self._log.add(f"{stage}.discarded", key, found)

    def _add_allowed(self, key: Key, excluded: Tensor) -> None:
        """Report of each row the tokens that excluded [rows, V] leaves."""
        for place, row in enumerate(excluded.logical_not().cpu()):
            self._log.add("verify.allowed", key._replace(row=place), tuple(row.nonzero().flatten().tolist()))

    def _add_row(self, stage: str, key: Key, columns: Columns, at: int) -> None:
        for channel, values in columns.items():
            self._log.add(f"{stage}.{channel}", key, values[at])


def _layers(name: str, tapped: Tapped) -> Iterator[tuple[int, Columns]]:
    """Yield layers of an extend with what was tapped of each; a draft that runs them all at once counts as layer 0."""
    for step in sorted({step for tap, step in tapped if tap == f"{name}.positions"}):
        yield max(step, 0), _columns(name, tapped, step)


def _discarded(
    name: str, tapped: Tapped, live: Sequence[int], width: int = 1, step: int = -1, first: int = 0
) -> Iterator[DiscardedRow]:
    """Yield the rows from column live[place] on, and all of a place that has none; columns count from `first`."""
    if (f"{name}.slots", step) not in tapped:
        return
    taps = (tapped[f"{name}.{tap}", step].flatten().tolist() for tap in ("positions", "slots", "rows"))
    states = tapped.get((f"{name}.states", step))
    state_slots = states.tolist() if states is not None else ()
    for at, (position, slot, req_row) in enumerate(zip(*taps, strict=True)):
        place, column = at // width, first + at % width
        if place >= len(live) or column >= live[place]:
            yield DiscardedRow(place, column, position, slot, req_row, state_slots[place] if state_slots else 0)


def _columns(name: str, tapped: Tapped, step: int = -1) -> Columns:
    columns: Columns = {}
    for tap in ("ids", "positions", "slots", "visible"):
        if (tensor := tapped.get((f"{name}.{tap}", step))) is not None:
            columns[tap] = tensor.flatten().tolist()
    if (hidden := tapped.get((f"{name}.hidden", step))) is not None:
        columns["hidden_in"] = vectors(hidden)
    if (f"{name}.proposal", step) in tapped:
        columns["proposal"] = _choices(name, "proposal", tapped, step)
    return columns


def _choices(name: str, tap: str, tapped: Tapped, step: int = -1) -> list[Choice]:
    margins = tapped[f"{name}.margin", step].to(torch.float64).tolist()
    return list(zip(tapped[f"{name}.{tap}", step].tolist(), margins, strict=True))
