"""What a campaign keeps: in any order, once, on a full disk, and what becomes of damaged files."""

import errno
import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftproof.fuzz.campaign.finding_rows import finding_of
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.schema import DATABASE_VERSION, CampaignFinding, QueuedScenario
from draftproof.fuzz.campaign.settings import (
    CampaignError,
    CampaignLimits,
    DiskError,
    RequestedSettings,
    Settings,
    fresh,
    memory,
    read,
    resumed,
)
from draftproof.fuzz.campaign.standing import CampaignProgress, Troubles
from draftproof.fuzz.campaign.store import Store, hash_of
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.formats.case import encode
from draftproof.properties.lib.files import write_whole
from draftproof.properties.values.scenario import Scenario
from tests.harness.doubles import failing, passing
from tests.named import named

NAMES = (
    *("eagle_padded", "hybrid_replay", "logprobs", "ends", "sampled_eagle", "five_in_graphs"),
    *("tree_eagle", "mixed_eagle", "aborted", "ranks_tensor", "draft_batch", "hybrid_snapshot"),
)
SCENARIOS = list(map(named, NAMES))
TABLES = ("bins", "contracts", "minimums", "counts", "draft_counts", "findings", "again")


def waiting() -> list[QueuedScenario]:
    return [QueuedScenario(place, one, hash_of(one), "test", "eagle") for place, one in enumerate(SCENARIOS)]


def answer_to(number: int) -> Answer:
    order = Order(number=number, scenario=SCENARIOS[number])
    answer = failing(order) if number % 4 == 1 else passing(order)
    own = tuple(f"bin {number} {place}" for place in range(80 * number))
    return msgspec.structs.replace(answer, bins=(*answer.bins, *own))


def take(store: Store, number: int) -> list[str]:
    answer = answer_to(number)
    return store.done(answer, 1.0, finding=finding_of(answer, SCENARIOS[number], number, 1.0))


def rows(path: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return sorted(db.execute(f"SELECT * FROM {table}"), key=repr)


def filled(path: Path, numbers: list[int]) -> Store:
    store = Store(path)
    store.queue(0, waiting())
    for number in numbers:
        take(store, number)
    store.finish_batch(range(len(SCENARIOS)))
    return store


def test_the_order_of_answers_changes_nothing(tmp_path: Path):
    orders = [list(range(12)), list(range(11, -1, -1)), random.Random(1).sample(range(12), 12)]
    for place, numbers in enumerate(orders):
        filled(tmp_path / f"{place}.sqlite", numbers).close()
    for table in (*TABLES, "scenarios"):
        first, *others = [rows(tmp_path / f"{place}.sqlite", table) for place in range(3)]
        assert others == [first, first], table
    assert len(rows(tmp_path / "0.sqlite", "findings")) == 1
    assert rows(tmp_path / "0.sqlite", "findings")[0][8:10] == (3, 1)


def test_what_is_read_again_is_what_was_known(tmp_path: Path):
    store = filled(tmp_path / "one.sqlite", [0, 1, 2, 3, 5, 9])
    store.close()
    again = Store(tmp_path / "one.sqlite")
    assert again.queued() == [waiting()[number] for number in (4, 6, 7, 8, 10, 11)]
    assert again.planned == 12
    assert again.sums().done == 6
    assert [one.hits for one in again.findings()] == [3]
    assert [again.scenario(number) for number in (0, 1, 2)] == [None, SCENARIOS[1], None]


def test_an_answer_counts_once(tmp_path: Path):
    store = filled(tmp_path / "one.sqlite", [0])
    before = rows(store.path, "counts")
    with pytest.raises(KeyError):
        take(store, 0)
    with pytest.raises(KeyError):
        store.done(msgspec.structs.replace(answer_to(0), number=99), 1.0)
    assert rows(store.path, "counts") == before
    assert store.sums().done == 1


def test_channels_that_are_left_out_in_some_scenario_are_kept(tmp_path: Path):
    store = filled(tmp_path / "one.sqlite", [])
    for number, left_out in ((0, ("verify.choice",)), (2, ()), (3, ("verify.choice", "verify.ids"))):
        store.done(msgspec.structs.replace(answer_to(number), left_out=left_out), 1.0)
    assert store.sums().left_out == {"verify.choice", "verify.ids"}


def test_a_passing_scenario_is_let_go_of_and_a_failing_one_kept(tmp_path: Path):
    store = filled(tmp_path / "one.sqlite", list(range(12)))
    kept = {row[0] for row in rows(store.path, "texts")}
    assert kept == {1}
    assert store.scenario(1) == SCENARIOS[1]


def test_an_answer_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = filled(tmp_path / "one.sqlite", [0])
    before = {table: rows(store.path, table) for table in (*TABLES, "scenarios")}
    monkeypatch.setattr(Store, "_hit", lambda own, *_: own._db.execute("INSERT INTO nowhere VALUES(1)"))
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        take(store, 1)
    assert {table: rows(store.path, table) for table in (*TABLES, "scenarios")} == before
    assert not store._db.in_transaction


def other(identity: str) -> CampaignFinding:
    found = finding_of(answer_to(1), SCENARIOS[1], 1, 1.0)
    assert found is not None
    return msgspec.structs.replace(found, identity=identity)


WRITES: dict[str, tuple[str, Callable[[Store], object]]] = {
    "queue": ("campaign WHEN NEW.key = 'begin'", lambda store: store.queue(1, [waiting()[0]._replace(number=12)])),
    "done": ("findings", lambda store: take(store, 1)),
    "compared": ("findings", lambda store: store.compared(0, other("new"))),
    "keep": ("findings WHEN NEW.identity = 'second'", lambda store: store.keep(other("first"), other("second"))),
    "keep_facts": ("campaign WHEN NEW.key = 'second'", lambda store: store.keep_facts(first=1, second=2)),
}
"""What a method writes last, and a call of it."""


@pytest.mark.parametrize("method", WRITES)
def test_what_is_written_is_there_whole_or_not_at_all(tmp_path: Path, method: str):
    last, write = WRITES[method]
    store = filled(tmp_path / "one.sqlite", [])
    store.done(answer_to(0), 1.0, sign="sign")
    tables = (*TABLES, "scenarios", "texts", "campaign")
    before = {table: rows(store.path, table) for table in tables}
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"CREATE TRIGGER no BEFORE INSERT ON {last} BEGIN SELECT RAISE(ABORT, 'no more'); END")
    with pytest.raises(sqlite3.IntegrityError, match="no more"):
        write(store)
    assert {table: rows(store.path, table) for table in tables} == before
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("DROP TRIGGER no")
    write(store)
    assert {table: rows(store.path, table) for table in tables} != before, "another process sees it at once"


def test_a_full_disk_is_an_error_that_changes_nothing(tmp_path: Path):
    path = tmp_path / "one.sqlite"
    store = Store(path)
    store.queue(0, waiting())
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for number in range(12):
            take(store, number)

    with pytest.raises(DiskError, match=r"one\.sqlite cannot be written: .* full; make room and run the same command"):
        fill()
    taken = store.sums().done
    assert 0 < taken < 12
    assert [one.number for one in store.queued()] == list(range(taken, 12))
    store.close()
    store = Store(path)
    for number in range(taken, 12):
        take(store, number)
    store.finish_batch(range(12))
    filled(tmp_path / "other.sqlite", list(range(12))).close()
    for table in (*TABLES, "scenarios"):
        assert rows(path, table) == rows(tmp_path / "other.sqlite", table), table


@pytest.mark.parametrize("damage", ["garbage", "header", "middle", "row"])
def test_a_damaged_database_is_named(tmp_path: Path, damage: str):
    path = tmp_path / "results.sqlite"
    filled(path, list(range(11))).close()
    raw = bytearray(path.read_bytes())
    if damage == "garbage":
        raw[:] = b"nonsense" * 600
    elif damage == "header":
        raw[:100] = bytes(100)
    elif damage == "middle":
        raw[4096:40960] = b"\xa5" * (40960 - 4096)
    path.write_bytes(raw)
    if damage == "row":
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE texts SET scenario = '{'")
    with pytest.raises(CampaignError, match=r"results\.sqlite cannot be used: .*; expected a whole database"):
        Store(path)


def test_a_database_of_another_version_is_refused_and_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "results.sqlite"
    filled(path, list(range(12))).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 0")
    before = rows(path, "scenarios")
    message = (
        rf"invalid version 0 of .*results\.sqlite: expected {DATABASE_VERSION}, as this Draftproof writes it; "
        "resume the campaign with the Draftproof that began it, or begin a new one in another directory"
    )
    with pytest.raises(CampaignError, match=message):
        Store(path)
    assert rows(path, "scenarios") == before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (0,)
        db.execute(f"PRAGMA user_version = {DATABASE_VERSION}")
    assert Store(path).sums().done == 12


def test_an_empty_database_is_a_new_one(tmp_path: Path):
    path = tmp_path / "results.sqlite"
    path.touch()
    assert Store(path).sums().done == 0
    assert rows(path, "pragma_user_version") == [(DATABASE_VERSION,)]


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "folder" / "one.json"
    write_whole(path, "first\n")

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_whole(path, "second\n")
    assert path.read_text() == "first\n"
    assert os.listdir(path.parent) == ["one.json"]


def test_two_campaigns_in_one_directory_are_refused(tmp_path: Path):
    refused = pytest.raises(
        CampaignError, match=rf"process {os.getpid()} runs a campaign there; expected a directory of its own"
    )
    with RunDir(tmp_path / "run"), refused:
        RunDir(tmp_path / "run")
    RunDir(tmp_path / "run").close()


def test_a_directory_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(CampaignError, match="holds other things"):
        RunDir(tmp_path)
    with pytest.raises(CampaignError, match="expected a directory that can be made and written"):
        RunDir(tmp_path / "thesis.tex")
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_campaign_begins_once(tmp_path: Path):
    with RunDir(tmp_path) as directory:
        begun = directory.begin(RequestedSettings(seed=7, drafts=("mtp",)), {})
        assert begun == Settings(seed=7, drafts=("mtp",))
        assert directory.begin(RequestedSettings(), {}) == begun
        assert directory.begin(RequestedSettings(seed=7), {}) == begun
        with pytest.raises(CampaignError, match="invalid seed '8': expected 7, as in this campaign"):
            directory.begin(RequestedSettings(seed=8), {})
        (tmp_path / "campaign.json").write_text('{"seed": "x"}')
        with pytest.raises(CampaignError, match=r"campaign\.json: invalid seed 'x': expected `int`"):
            directory.begin(RequestedSettings(), {})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (RequestedSettings(drafts=("eagle",)), "invalid draft 'eagle': expected all"),
        (RequestedSettings(device="cuda"), "invalid device 'cuda': expected cpu"),
        (RequestedSettings(fault="pages-leak-on-finish"), "invalid fault 'pages-leak-on-finish': expected none"),
        (RequestedSettings(patch="0a"), "invalid patch '0a': expected none"),
        (RequestedSettings(subject="a:b"), "invalid subject 'a:b': expected none"),
    ],
)
def test_other_settings_are_refused(asked: RequestedSettings, message: str):
    with pytest.raises(CampaignError, match=message):
        resumed(Settings(), asked)
    assert resumed(fresh(asked), asked) == fresh(asked)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"subject": "module:Mine"},
            "invalid subject 'module:Mine': expected .*; an older Draftproof wrote it: resume",
        ),
        ({"guided": True}, "invalid guided True, no field: expected .*; an older Draftproof wrote it: resume"),
        ({"gone": 1}, "invalid gone 1, no field: expected .*; an older Draftproof wrote it: resume the campaign with"),
        ({"seed": None}, "invalid seed None: expected"),
    ],
)
def test_settings_of_another_form_say_what_to_do(tmp_path: Path, change: dict[str, Any], said: str):
    path = tmp_path / "campaign.json"
    path.write_text(json.dumps(json.loads(encode(Settings())) | change))
    with pytest.raises(CampaignError, match=said):
        read(path)


def test_a_file_that_is_no_campaigns_is_told(tmp_path: Path):
    (tmp_path / "campaign.json").write_text('{"colour": "red"}')
    with pytest.raises(CampaignError, match="it is no campaign's"):
        read(tmp_path / "campaign.json")


def test_scenarios_of_another_version_are_refused():
    with pytest.raises(CampaignError, match="invalid version 1 of the strategies: expected"):
        resumed(msgspec.structs.replace(Settings(), strategies=1), RequestedSettings())


def test_sizes():
    assert [memory(text) for text in ("4G", "900M", None)] == [4 << 30, 900 << 20, None]
    for text in ("4", "1M", "4GB", "-1G"):
        with pytest.raises(CampaignError, match="invalid --memory"):
            memory(text)


def test_a_hash_is_the_scenarios():
    assert len({hash_of(scenario) for scenario in SCENARIOS}) == len(set(SCENARIOS))
    again = msgspec.json.decode(msgspec.json.encode(SCENARIOS[0]), type=Scenario)
    assert hash_of(again) == hash_of(SCENARIOS[0])


def test_the_same_trouble_is_one(tmp_path: Path):
    store = Store(tmp_path / "one.sqlite")
    troubles = Troubles(store, CampaignProgress(store, CampaignLimits(1.0), ()))
    for what in ("full", "full", "empty"):
        troubles.add(what)
    assert troubles.kept == ["full", "empty"]
    assert [what for _, what in sorted(rows(store.path, "troubles"))] == ["full", "empty"]
