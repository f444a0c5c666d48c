"""The page of the night keeps the last result of each part."""

import re
from pathlib import Path

import pytest

from tests import nightly
from tests.test_layers import MAKEFILE

PAGE = nightly.PAGE.read_text(encoding="utf-8")


def test_parts_are_targets_of_make():
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    assert set(nightly.PARTS) <= targets


def test_the_page_is_as_it_is_written():
    assert nightly.written(PAGE, {}) == PAGE
    assert nightly.rows(PAGE)


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("x\n=== 2 failed, 10 passed, 3 skipped in 12.3s ===\n", "2 failed, 10 passed, 3 skipped"),
        ("10 passed, 3 skipped, 1 warning in 700.12s (0:11:40)\n", "10 passed, 3 skipped, 1 warning"),
        (
            "28 of 29 detected as named, 29 noticed in all\nPASS: 29 faults\n",
            "28 of 29 detected as named, 29 noticed in all",
        ),
        ("a b\nPASS: 200 scenarios. Again: draftproof check\n", "PASS: 200 scenarios"),
        ("Success: no issues found in 700 source files\nAll checks passed!\n", "no issues found in 700 source files"),
        ("nothing", ""),
    ],
)
def test_a_part_says_its_numbers(output, found):
    assert nightly.numbers(output) == found


def test_a_part_that_fails_is_on_the_page_and_the_rest_runs(tmp_path):
    page, ran = tmp_path / "nightly.md", []

    def part(name: str) -> tuple[int, str]:
        ran.append(name)
        return (2, "1 failed, 2 passed in 3s") if name == "test" else (0, "5 passed in 3s")

    assert nightly.run(["check", "test", "test-slow"], page, part) == ["test"]
    assert ran == ["check", "test", "test-slow"]
    found = nightly.rows(page.read_text(encoding="utf-8"))
    assert [row.split(" | ")[1] for row in found.values()] == ["passed", "FAILED", "passed"]
    assert "1 failed, 2 passed" in found["test"]
    assert nightly.run(["test"], page, lambda _: (0, "3 passed in 3s")) == []
    again = nightly.rows(page.read_text(encoding="utf-8"))
    assert "3 passed" in again["test"]
    assert again["check"] == found["check"]


def test_a_part_is_not_given_the_arguments_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text('lint:\n\t@echo "of lint: [$(ARGS)]"\n', encoding="utf-8")
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setenv("MAKELEVEL", "1")
    monkeypatch.setenv("MAKEFLAGS", " -- ARGS=lint")
    monkeypatch.setenv("ARGS", "lint")
    assert nightly.make("lint") == (0, "of lint: []\n")
