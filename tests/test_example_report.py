"""The report that the documents show is a page by itself, of the bug that it is said to be of."""

import re

from tests.pictured import REPORT


def test_the_example_is_whole_and_of_no_machine():
    page = REPORT.read_text(encoding="utf-8")
    assert "draft.positions" in page
    assert "draftproof replay campaign/findings/" in page
    assert "1 finding" in page
    assert re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]*", page) == []
    assert re.findall(r"/(?:tmp|root|home|work)/[^\"<]*", page) == []
