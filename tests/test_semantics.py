"""The chapters of docs/semantics/: who has which definition, what is made of the code, and examples that run."""

from __future__ import annotations

import doctest
import re
import subprocess
from pathlib import Path

import pytest

from draftproof.report.definitions import CHAPTERS, UnknownDefinitionError, chapter_of, linked, place_of
from draftproof.report.markdown import TableError, written
from draftproof.report.tables import TABLES, MadePart
from tests.definitions import HEADING, ROOT, defined, pages

SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
INDEX = (ROOT / "docs/semantics/README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDER = ROOT / "docs/semantics"


@pytest.mark.parametrize("made", TABLES, ids=lambda one: f"{Path(one.page).stem}-{one.name}")
def test_what_is_made_is_as_it_is_made(made: MadePart) -> None:
    """Otherwise run `make tables`."""
    page = (ROOT / made.page).read_text(encoding="utf-8")
    assert written(page, made.name, made.make()) == page


def test_a_page_without_a_place_is_told() -> None:
    with pytest.raises(TableError, match="invalid page: expected <!-- pairs --> and <!-- /pairs --> once"):
        written("# A page\n\n<!-- other -->\n\nold\n\n<!-- /other -->", "pairs", "new")
    assert written("a\n\n<!-- b -->\n\nold\n\n<!-- /b -->\n\nc", "b", "new").split() == [
        *("a", "<!--", "b", "-->", "new", "<!--", "/b", "-->", "c")
    ]


def test_every_page_is_a_chapter_under_its_title() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} - {"README.md"} == {f"{one.name}.md" for one in CHAPTERS}
    assert [pages()[one.path].partition("\n")[0] for one in CHAPTERS] == [f"# {one.title}" for one in CHAPTERS]


def test_the_site_has_the_chapters_in_their_order() -> None:
    listed = re.findall(r"^ +- (.+): semantics/([\w-]+)\.md$", SITE, flags=re.MULTILINE)
    assert listed[1:] == [(one.title, one.name) for one in CHAPTERS]


def test_every_definition_is_once_in_the_chapter_of_its_kind() -> None:
    assert len(defined()) > 300
    assert len(set(defined())) == len(defined())
    for path, text in pages().items():
        assert [number for number in HEADING.findall(text) if chapter_of(number).path != path] == []
    kinds = [kind for one in CHAPTERS for kind in one.kinds]
    assert {number.split("-")[1] for number in defined()} == set(kinds)
    assert len(set(kinds)) == len(kinds)


def test_every_definition_has_a_name() -> None:
    for path, text in pages().items():
        named = re.findall(r"^#+ (S-[A-Z]+-\d+)\n\n\*\*[A-Z`].+?\.\*\* ", text, flags=re.MULTILINE)
        assert named == HEADING.findall(text), path


def test_a_definition_is_found_by_its_number() -> None:
    assert place_of("S-ROUND-3") == "docs/semantics/round.md#s-round-3"
    assert place_of("S-TP-1", "docs/") == "semantics/ranks.md#s-tp-1"
    assert linked("as S-KV-6 has it") == "as [S-KV-6](kv-quantization.md#s-kv-6) has it"
    with pytest.raises(UnknownDefinitionError, match="no definition 'S-NONE-1': expected one of S-ROUND, S-LIMIT"):
        chapter_of("S-NONE-1")


def test_footnotes_are_used_once_and_there() -> None:
    for path, text in pages().items():
        notes = re.findall(r"^\[\^([\w-]+)\]: ", text, flags=re.MULTILINE)
        used = re.findall(r"(?<!^)\[\^([\w-]+)\]", text, flags=re.MULTILINE)
        assert sorted(notes) == sorted(used), path
        assert len(set(notes)) == len(notes), path


def test_sources_name_chapters_that_have_what_they_cite() -> None:
    listing = subprocess.run(
        ["git", "grep", "-hoE", r"docs/semantics/\w+\.md(, S-[A-Z]+)?"], cwd=ROOT, capture_output=True
    )
    found = set(listing.stdout.decode().splitlines())
    assert len(found) > 30
    for one in found:
        path, _, cited = one.partition(", ")
        assert (ROOT / path).exists(), one
        assert not cited or chapter_of(f"{cited}-1").path == path, one
    gone = subprocess.run(["git", "grep", "-l", r"semantics\.md"], cwd=ROOT, capture_output=True).stdout.decode()
    assert set(gone.split()) <= {"tests/test_semantics.py"}


def examples(text: str) -> list[str]:
    return FENCE.findall(text.partition("\n## Worked example\n")[2])


@pytest.mark.parametrize("name", [one.name for one in CHAPTERS])
def test_every_chapter_ends_with_a_worked_example_that_is_short(name: str) -> None:
    blocks = examples(pages()[f"docs/semantics/{name}.md"])
    assert blocks
    assert sum(len(block.splitlines()) for block in blocks) <= 30
    assert name == "beside" or re.search(r"^(?!>>> |\.\.\. ).*\d", "".join(blocks), flags=re.MULTILINE), "numbers"


@pytest.mark.parametrize("path", [*pages(), "docs/semantics/README.md"])
def test_examples_show_what_is_computed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    text = (ROOT / path).read_text(encoding="utf-8")
    for block in FENCE.findall(text):
        told: list[str] = []
        case = doctest.DocTestParser().get_doctest(block, {}, path, path, 0)
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(
            case, out=told.append
        )
        assert failed.attempted
        assert not failed.failed, "".join(told)


def test_the_index_leads_to_what_is_looked_up_most() -> None:
    for what in ("(beside.md", "(channels.md", "CONTRIBUTING.md#a-draft"):
        assert what in INDEX
