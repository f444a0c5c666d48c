"""The parts of a report by themselves: timelines, heat maps, charts, matrices, numbers."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from draftproof.faults.trial import FaultOutcome
from draftproof.properties.coverage import CROSSES, POINTS, impossible, universe
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.report.html.chart import MOST_POINTS, chart, steps
from draftproof.report.html.grid import WIDEST, grid
from draftproof.report.html.heat import covered
from draftproof.report.html.matrix import MEANINGS, note, number, usual_tests
from draftproof.report.numbers import count, share, short
from tests.report.report_run import drawn, matrix


def test_the_timeline_marks_the_first_divergence_among_the_others():
    drawn_ = grid(drawn())
    cells = [(group.name, line.phase, cell) for group in drawn_.groups for line in group.lines for cell in line.cells]
    states = Counter(cell.state for _, _, cell in cells)
    assert states["first"] == 1
    assert states["differ"] >= 2
    assert states["missing"] >= 3
    ((request, phase, first),) = [one for one in cells if one[2].state == "first"]
    found = drawn().first
    assert (request, phase) == (f"request {found.request}", "draft")
    assert f"expected {found.expected}, got {found.got}" in first.title
    assert {cell.sign for _, _, cell in cells} == {"", "·", "x", "-", "◆"}
    assert drawn_.columns[:2] == ("0", "1")
    assert drawn_.columns[-1] == "never"
    assert [group.name for group in drawn_.groups] == [f"request {n}" for n in range(4)] + ["engine"]
    assert drawn_.groups[0].rounds[:4] == ("P", "P", "1", "2")
    assert all(len(line.cells) == len(drawn_.columns) for group in drawn_.groups for line in group.lines)


def test_a_long_timeline_is_drawn_around_the_first_divergence():
    mark = next(mark for mark in drawn().marks if mark.different)
    marks = tuple(
        msgspec.structs.replace(mark, round=at, step=at, last_step=at, different=int(at == 400), same=1)
        for at in range(600)
    )
    first = msgspec.structs.replace(drawn().first, round=400, request=mark.request, phase=mark.phase)
    drawn_ = grid(msgspec.structs.replace(drawn(), marks=marks, first=first))
    assert len(drawn_.columns) == WIDEST
    assert "400" in drawn_.columns
    assert drawn_.left_out == 600 - WIDEST
    assert [cell.state for cell in drawn_.groups[0].lines[0].cells].count("first") == 1


def test_every_bin_has_one_square_of_its_state():
    known = universe(ALGORITHMS)
    names = known[:: max(1, len(known) // 300)]
    shown = covered([{"name": name, "hits": 10 + at} for at, name in enumerate(names)], ALGORITHMS)
    points = [cell for point in shown.points for _, cell in point.squares]
    crossed = [cell for cross in shown.crosses for one in cross.maps for _, line in one.lines for cell in line]
    states = Counter(cell.state for cell in (*points, *crossed))
    assert states["hit"] == len(names) == shown.hit
    assert states["hole"] == len(known) - len(names) == sum(len(values) for _, values in shown.holes)
    assert states["impossible"] > 20
    assert states["outside"] == 0
    every = 0
    for points_of in CROSSES.values():
        size = 1
        for point in points_of:
            size *= len(POINTS[point])
        every += size
    assert states.total() == every
    assert {cell.level for cell in (*points, *crossed)} <= set(range(6))
    assert all(cell.title for cell in (*points, *crossed) if cell.state != "hit")


def test_a_square_lies_where_its_values_cross():
    name = next(name for name in universe(ALGORITHMS) if name == "K x page: K=2, page=after")
    shown = covered([{"name": name, "hits": 1234}], ALGORITHMS)
    cross = next(cross for cross in shown.crosses if cross.name == "K x page")
    assert (cross.down, cross.across, cross.hit) == ("K", "page", 1)
    lines = dict(cross.maps[0].lines)
    square = lines["2"][cross.maps[0].across.index("after")]
    assert (square.state, square.text, square.level) == ("hit", "1.2k", 5)
    turned = next(cross for cross in shown.crosses if cross.name == "accept x K")
    assert (turned.down, turned.across) == ("K", "accept")
    impossible_ = dict(turned.maps[0].lines)["0"][turned.maps[0].across.index("all")]
    assert impossible_.state == "impossible"
    assert impossible("accept x K: accept=all, K=0") in impossible_.title
    three = next(cross for cross in shown.crosses if cross.name == "accept x rows x draft")
    assert [one.caption for one in three.maps] == [f"draft = {draft}" for draft in ALGORITHMS]


def test_bins_of_other_drafts_are_neither_holes_nor_impossible():
    shown = covered([], ("eagle",))
    draft = next(point for point in shown.points if point.name == "draft")
    states = {value: cell.state for value, cell in draft.squares}
    assert states == {name: "hole" if name == "eagle" else "outside" for name in ALGORITHMS}
    assert shown.possible == len(universe(("eagle",)))
    three = next(cross for cross in shown.crosses if cross.name == "accept x rows x draft")
    assert [one.caption for one in three.maps] == ["draft = eagle"]
    two = next(cross for cross in shown.crosses if "draft" in CROSSES[cross.name] and len(CROSSES[cross.name]) == 2)
    assert "eagle" in (*two.maps[0].across, *dict(two.maps[0].lines))
    assert "mtp" not in (*two.maps[0].across, *dict(two.maps[0].lines))
    assert "accept x chain" not in [cross.name for cross in shown.crosses]
    assert "chain" not in [point.name for point in shown.points]


def test_names_that_nobody_declares_are_listed():
    shown = covered([{"name": "accept: accept=most", "hits": 3}], ALGORITHMS)
    assert shown.strangers == ("accept: accept=most",)
    assert shown.hit == 0


def test_a_chart_rises_and_stays_in_its_frame():
    drawn_ = chart(steps([1.0, 2.0, 30.0, 500.0]), until=600.0, limit=8, events=[(3.0, "x"), (9999.0, "late")])
    assert drawn_ is not None
    points = [tuple(map(float, pair.split(","))) for pair in drawn_.points.split()]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    assert xs == sorted(xs)
    assert ys == sorted(ys, reverse=True)
    assert drawn_.left <= min(xs) <= max(xs) <= drawn_.right
    assert drawn_.limit is not None
    assert drawn_.top <= drawn_.limit < min(ys) <= max(ys) <= drawn_.bottom
    assert [tick.text for tick in drawn_.across] == ["0", "2 min", "4 min", "6 min", "8 min", "10 min"]
    assert drawn_.samples[-1] == ("10 min", "4")
    assert max(event.at for event in drawn_.events) <= drawn_.right


def test_a_chart_of_nothing_is_none_and_one_of_much_is_thinned():
    assert chart([], until=5.0) is None
    assert chart([(1.0, float("nan"))], until=5.0) is None
    many = chart(steps([at / 10 for at in range(20_000)]), until=2000.0)
    assert many is not None
    assert len(many.points.split()) <= 2 * MOST_POINTS + 2
    assert many.samples[-1][1] == "20,000"
    tiny = chart([(0.0, 0.0)], until=0.0)
    assert tiny is not None
    assert "nan" not in tiny.points


def test_what_needs_a_look_stands_first():
    assert MEANINGS.keys() == set(FaultOutcome)
    assert list(MEANINGS)[:3] == [FaultOutcome.STALE, FaultOutcome.INERT, FaultOutcome.SURVIVED]


def test_a_fault_in_numbers_and_words():
    faults = {fault.id.rsplit("-", 1)[1]: fault for fault in matrix().faults}
    assert number(faults["3"].examples, "g") == ("never", "")
    assert number(faults["0"].examples, "g") == ("1 (1..10)", "1")
    assert note(faults["3"]).startswith("it needs a page")
    output, acceptance = zip(*(usual_tests(faults[name]) for name in "017"), strict=True)
    assert [cell.text for cell in output] == ["seen", "not seen", ""]
    assert "1.200 drafts accepted a round; 1.500 without the fault" in acceptance[0].why


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (share(999_999, 1_000_000), "99.9 %"),
        (share(1, 1_000_000), "0.1 %"),
        (share(5, 5), "100 %"),
        (share(0, 0), "-"),
        (short(999), "999"),
        (short(9_960), "10k"),
        (short(2_400_000), "2.4M"),
        (count(12345), "12,345"),
        (count(3.14159), "3.1"),
    ],
)
def test_numbers_in_words(said, wanted):
    assert said == wanted
