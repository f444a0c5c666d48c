"""The parts of a report by themselves: timelines, heat maps, charts, matrices, numbers."""

from collections import Counter

import pytest
from msgspec.structs import replace

from draftproof.faults.trial import FaultOutcome
from draftproof.properties.coverage.bins import universe
from draftproof.properties.coverage.facts import SHOWN
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
    marks = tuple(replace(mark, round=at, step=at, last_step=at, different=int(at == 400), same=1) for at in range(600))
    first = replace(drawn().first, round=400, request=mark.request, phase=mark.phase)
    drawn_ = grid(replace(drawn(), marks=marks, first=first))
    assert len(drawn_.columns) == WIDEST
    assert "400" in drawn_.columns
    assert drawn_.left_out == 600 - WIDEST
    assert [cell.state for cell in drawn_.groups[0].lines[0].cells].count("first") == 1


def test_every_bin_has_one_square_of_its_state():
    known = universe(ALGORITHMS)
    names = known[:: max(1, len(known) // 300)]
    shown = covered([{"name": name, "hits": 10 + at} for at, name in enumerate(names)], ALGORITHMS)
    cells = [cell for group in shown.groups for _, line in group.lines for cell in line]
    states = Counter(cell.state for cell in cells)
    assert states["hit"] == len(names) == shown.hit == sum(group.hit for group in shown.groups)
    assert states["hole"] == len(known) - len(names) == sum(len(facts) for _, facts in shown.holes)
    assert shown.possible == len(known) == sum(group.possible for group in shown.groups)
    assert states.total() == len(SHOWN) * len(ALGORITHMS)
    assert states["impossible"] == states.total() - len(known) > 20
    assert {cell.level for cell in cells} <= set(range(6))
    assert all(cell.title for cell in cells if cell.state != "hit")


def test_a_square_lies_where_a_fact_meets_a_draft():
    shown = covered([{"name": "ngram: matches_of_fewer", "hits": 1234}], ALGORITHMS)
    group = next(group for group in shown.groups if group.name == "lookup")
    squares = dict(zip(shown.drafts, dict(group.lines)["found fewer"], strict=True))
    assert (squares["ngram"].state, squares["ngram"].text, squares["ngram"].level) == ("hit", "1.2k", 5)
    assert {cell.state for draft, cell in squares.items() if draft != "ngram"} == {"impossible"}
    assert group.hit == 1
    assert group.possible == len(group.lines)


def test_what_cannot_be_is_no_hole():
    never = {"eagle: disaggregated_requests", "eagle: accept_all"}
    shown = covered([{"name": "eagle: accept_all", "hits": 1}], ("eagle",), never)
    assert shown.possible == len(universe(("eagle",))) - 1
    assert dict(shown.holes).keys() == {"eagle"}
    assert "disaggregated_requests" not in dict(shown.holes)["eagle"]
    assert shown.covered == {"eagle: accept_all"}
    assert "lookup" not in [group.name for group in shown.groups]
    assert shown.drafts == ("eagle",)


def test_names_that_nobody_declares_are_listed():
    shown = covered([{"name": "eagle: most", "hits": 3}], ALGORITHMS)
    assert shown.strangers == ("eagle: most",)
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
