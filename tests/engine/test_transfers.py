"""What a decode step moves between host and device: its inputs once, its results once."""

import importlib
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from msgspec.structs import replace

from draftproof.engine.engine import Engine
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.pages import PagePool, PageTable
from draftproof.engine.runtime import downloaded_acceptance
from draftproof.engine.subject import build
from draftproof.engine.upload import UploadBlock, uploaded
from draftproof.properties.values.drafts import DFlash, Eagle3, Mtp, Ngram, ProbeDraft, Standalone
from draftproof.properties.values.scenario import Linear, Memory, States
from draftproof.reference.solved import solved
from tests.engine.scenarios import HEAD, MODEL, request, scenario

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CPU = torch.device("cpu")
LINEAR = Linear(key_heads=1, value_heads=2, key_dim=3, value_dim=2, conv=3)
_SIZES = {"seed": 8, "heads": 3, "kv_heads": 3, "key_dim": 2, "value_dim": 4, "lanes": 5}
DRAFTS = (
    HEAD,
    Eagle3(**_SIZES, features=(1, 0)),
    Mtp(**_SIZES, layers=3),
    Standalone(**_SIZES, layers=2),
    DFlash(**_SIZES, layers=2, features=(1, 0)),
    Ngram(max_n=2),
)


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the benchmark counts with."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("transfers").Transfers


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("draft", DRAFTS, ids=lambda one: type(one).__name__)
def test_a_round_has_one_upload_and_one_download(transfers: Any, draft: ProbeDraft, count: int) -> None:
    """Where nobody ends and no page is taken: each of these may add an upload."""
    assert _transfers_of_rounds(transfers, count, draft=draft) == {(1, 1)}


@pytest.mark.parametrize("commit", ["snapshot", "replay"])
def test_a_round_with_recurrent_states_has_no_more(transfers: Any, commit: Literal["snapshot", "replay"]) -> None:
    model = replace(MODEL, layer_types=("linear_attention", "full_attention"), linear=LINEAR)
    assert _transfers_of_rounds(transfers, 2, model=model, states=States(commit=commit, checkpoint=4)) == {(1, 1)}


def _transfers_of_rounds(transfers: Any, count: int, **changes: Any) -> set[tuple[int, int]]:
    """Return the uploads and downloads of steps in which each of so many requests has a round, and goes on."""
    memory = Memory(page_size=40, pages=3, request_slots=3, max_len=40)
    requests = [request(prompt=5, budget=20, plans="3/0") for _ in range(count)]
    case = scenario(*requests, memory=memory, **changes)
    models = build.models(case, CPU)
    engine = Engine(models.target, models.draft, build.config(case), CPU)
    engine.capture(HostBackend())
    for one in build.requests(case, solved(case).script):
        engine.add(one)
    steps = []
    with torch.no_grad():
        while not engine.idle:
            with transfers() as counted:
                commits = engine.step()
            if len(commits) == count and all(one.round and not one.finished for one in commits):
                steps.append((counted.uploads, counted.downloads))
    assert len(steps) > 1
    return set(steps)


def test_numbers_are_whole_on_their_way() -> None:
    """What is narrow in between, and wide again when it is kept, is none of what `config.capacity` looks at."""
    large = (1 << 40) + 5
    assert uploaded({"positions": [large], "pending_tokens": [3]}, CPU)["positions"].tolist() == [large]
    mixed = uploaded({"temperatures": [0.1, 1e-300], "seeds": [large, -1], "none": []}, CPU)
    assert {name: one.tolist() for name, one in mixed.items()} == {
        "temperatures": [0.1, 1e-300],
        "seeds": [large, -1],
        "none": [],
    }
    two = torch.tensor([[large, large + 1]])
    outputs = {
        "ids": two,
        "target_tokens": two,
        "accept_index": torch.tensor([[0, -1]]),
        "correct_len": torch.tensor([0]),
        "bonus": torch.tensor([large]),
    }
    assert downloaded_acceptance(outputs).tokens == ((large,),)
    table = PageTable(torch.zeros((2, 1), dtype=torch.int64))
    table.grow([(1, 1)], PagePool([large]))
    assert table.device[1].tolist() == [large]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_block_holds_what_was_sent_and_padding_behind_it(size: int) -> None:
    shapes = {"rows": ((), torch.int64), "shares": ((), torch.float64), "drafts": ((3,), torch.int64)}
    block = UploadBlock(shapes, 4, CPU)
    block.fill({"rows": [9] * 4, "shares": [0.5] * 4, "drafts": [8] * 12}, dict.fromkeys(shapes, 0), 4)
    block.fill({"rows": [7], "shares": [1e-300]}, {"rows": -1, "shares": 0, "drafts": 0}, size)
    views = block.views(size)
    assert {name: one.tolist() for name, one in views.items()} == {
        "rows": [7, *[-1] * (size - 1)],
        "shares": [1e-300, *[0.0] * (size - 1)],
        "drafts": [[0, 0, 0]] * size,
    }
    assert not any(one.storage_offset() * one.element_size() % 16 for one in views.values())
    with pytest.raises(ValueError, match="invalid rows, of 9 numbers: expected at most "):
        block.fill({"rows": [7] * 9}, dict.fromkeys(shapes, 0), size)
