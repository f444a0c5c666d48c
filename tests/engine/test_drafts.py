"""Draft algorithms: what no scenario shows by itself."""

import sys
from types import ModuleType
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftproof.engine.arena import Arena
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts import algorithm
from draftproof.engine.drafts.base import Accepted, Draft, DraftContext
from draftproof.engine.drafts.eagle import EagleDraft
from draftproof.engine.drafts.mtp import MtpDraft
from draftproof.engine.drafts.ngram import Match, NgramIndex
from draftproof.engine.models.base import CacheShape, NgramSettings
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.runtime import padded_buffers
from draftproof.properties.values.drafts import ALGORITHMS

MATCHES: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=24)
CONFIG = EngineConfig(steps=2, page_size=4, pages=8, request_slots=2, max_len=16, max_batch=2, chunk=4)


def brute_force(tokens: list[int], settings: NgramSettings) -> Match:
    """Every length, every end."""
    for size in range(settings.max_n, settings.min_n - 1, -1):
        ends = range(size - 1, len(tokens) - 1)
        for end in ends if settings.match == "earliest" else reversed(ends):
            if size < len(tokens) and tokens[end + 1 - size : end + 1] == tokens[len(tokens) - size :]:
                return Match(size, end + 1)
    return Match()


@given(TOKENS, st.lists(TOKENS, max_size=4), st.integers(1, 4), st.integers(1, 4), st.sampled_from(MATCHES))
def test_an_index_that_grew_finds_what_a_search_of_everything_finds(
    prompt: list[int], rounds: list[list[int]], one: int, other: int, match: Literal["earliest", "latest"]
) -> None:
    settings = NgramSettings(max(one, other), min(one, other), match)
    index, tokens = NgramIndex(settings, prompt), list(prompt)
    for new in rounds:
        index.advance(new)
        tokens += new
    found = brute_force(tokens, settings)
    assert index.match() == found
    behind = tokens[found.place :] if found.place >= 0 else []
    assert index.propose(3) == behind[:3]


def test_a_match_may_overlap_the_suffix() -> None:
    assert NgramIndex(NgramSettings(3), [7, 7, 7, 7]).match() == Match(3, 3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_found_by_its_name(name: str) -> None:
    assert issubclass(algorithm(name), Draft)


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(
        ValueError, match="invalid draft algorithm 'medusa': expected the name of a module of engine/drafts"
    ):
        algorithm("medusa")


def test_a_module_of_its_own_is_all_that_the_engine_needs_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Repeat(Draft):
        def prompt(self, batch: object, where: object, hidden: object, chosen: object) -> None: ...

    module = ModuleType("draftproof.engine.drafts.repeat")
    module.ALGORITHM = Repeat  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert algorithm("repeat") is Repeat


class Chain:
    """Three layers that are never run."""

    chain = True
    takes = "after_norm"
    target_ids = None
    cache_shape = CacheShape(3, 1, 1, 1, torch.int64)


class Target:
    width = 2
    hidden_dtype = torch.int64


@pytest.mark.parametrize("draft", [EagleDraft, MtpDraft])
def test_what_a_draft_says_holds_tokens_is_its_own_memory(draft: type[Draft]) -> None:
    shapes = draft.memory(Chain(), Target(), CONFIG)  # type: ignore[arg-type]
    assert draft.token_memory
    assert all(shapes[name][1] == torch.int64 for name in draft.token_memory)


def context() -> DraftContext:
    """Memory for a chain in request rows 1 and 2: of row 1 tokens 10, 11 and states 100, 101 are kept; of row 2 one."""
    shapes = {**MtpDraft.memory(Chain(), Target(), CONFIG), "page_table": ((3, 4), torch.int64)}  # type: ignore[arg-type]
    arena = Arena(shapes, torch.device("cpu"))
    arena["lookback_ids"][1:] = torch.tensor([[10, 11], [-1, 20]])
    arena["lookback_hidden_states"][1:] = torch.tensor([[[100, 100], [101, 101]], [[-1, -1], [200, 200]]])
    cache = object()
    return DraftContext(arena, cache, arena["page_table"], CONFIG, Probes(), Target())  # type: ignore[arg-type]


def accepted() -> Accepted:
    """Row 1 goes on from position 5 with one draft accepted, row 2 from position 1 with two."""
    choice = torch.tensor([[12, 13, 99], [21, 22, 23]])
    states = torch.tensor([[102, 103, 999], [201, 202, 203]])
    return Accepted(
        requests=(0, 1),
        req_rows=torch.tensor([1, 2]),
        seq_lens=torch.tensor([5, 1]),
        correct_len=torch.tensor([1, 2]),
        ids=torch.zeros(2, 3, dtype=torch.int64),
        target_tokens=choice,
        hidden_states=states.unsqueeze(2).expand(2, 3, 2),
        tokens=((12, 13), (21, 22, 23)),
    )


def begun(draft: MtpDraft) -> tuple[Views, Outputs]:
    """The buffers of layer 0, and what of them the next round begins with."""
    buffers = padded_buffers(draft.extend_inputs(3), 2, torch.device("cpu"))
    buffers.fill(draft.extend_values(accepted()), 2, 2)
    return buffers.view(2), draft._begin(buffers.view(2))


def test_a_chain_begins_two_entries_early_or_where_the_request_begins() -> None:
    values, _ = begun(MtpDraft(Chain(), context()))
    assert values["positions"].tolist() == [3, 0]
    assert values["last"].tolist() == [3, 3]
    assert values["ids"][0, :4].tolist() == [10, 11, 12, 13]
    assert values["ids"][1, :4].tolist() == [20, 21, 22, 23]
    assert values["hidden_states"][0, :4, 0].tolist() == [100, 101, 102, 103]
    assert values["hidden_states"][1, :4, 0].tolist() == [200, 201, 202, 203]


def test_a_chain_remembers_its_last_entries_and_nothing_rejected() -> None:
    memory = context()
    draft = MtpDraft(Chain(), memory)
    _, left = begun(draft)
    tokens = [{"token": torch.tensor([layer, layer + 5])} for layer in range(3)]
    draft.save_next_round(accepted(), ({**tokens[0], **left}, *tokens[1:]))
    assert memory.arena["next_draft_tokens"][1:].tolist() == [[0, 1, 2], [5, 6, 7]]
    assert memory.arena["lookback_ids"][1:].tolist() == [[12, 13], [22, 23]]
    assert memory.arena["lookback_hidden_states"][1:, :, 0].tolist() == [[102, 103], [202, 203]]
