"""Reports of campaigns that are large: of many findings and troubles, and of many machines."""

import sqlite3
from contextlib import closing
from pathlib import Path

from draftproof.report.html.page import MOST_FINDINGS, MOST_TROUBLES, render, report
from draftproof.report.html.source import read_run
from tests.report.report_run import finding, make


def added(run: Path, table: str, rows: list[tuple[object, object]]) -> None:
    with closing(sqlite3.connect(run / "results.sqlite")) as store, store:
        store.executemany(f"INSERT INTO {table} VALUES(?, ?)", rows)


def test_a_page_of_many_findings_and_troubles_says_how_many_it_leaves_out(tmp_path: Path):
    many = tuple(finding(identity=f"one {number}", slug=f"s{number}", at=float(number)) for number in range(1, 108))
    run = make(tmp_path / "run", many)
    added(run, "troubles", [(float(at), f"trouble {at}") for at in range(1000, 1250)])
    shown = report(read_run(run))
    assert (len(shown.findings), len(shown.troubles), shown.left_out) == (MOST_FINDINGS, MOST_TROUBLES, (7, 51))
    page = render(shown)
    assert shown.says.startswith("107 findings (107 FAIL)")
    assert "And 7 later ones: the table findings of results.sqlite has them." in page
    assert "And 51 later ones: the table troubles of results.sqlite has them." in page


def test_nodes_of_a_cluster_are_named(tmp_path: Path):
    run = make(tmp_path / "run", (finding(node="one: x86_64 CPU, python 3.11"),))
    added(run, "nodes", [("one: x86_64 CPU, python 3.11", 1), ("two", 1999)])
    shown = report(read_run(run))
    assert dict(shown.facts)["Nodes"] == "one: x86_64 CPU, python 3.11 (1 scenario); two (1,999 scenarios)"
    assert dict(shown.findings[0].facts)["Node"] == "one: x86_64 CPU, python 3.11"
