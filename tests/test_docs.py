"""What README and docs show is what happens: commands run, examples run, links and numbers hold."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftproof.report.definitions import place_of
from draftproof.report.markdown import anchor
from tests.definitions import defined
from tests.warm import Warm

ROOT = Path(__file__).resolve().parent.parent
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
OUTSIDE = ("README.md", "CONTRIBUTING.md", "DESIGN.md", "CHANGELOG.md", "SKILL.md")
"""Pages in the root, which the site has, too."""
PAGES = [ROOT / name for name in OUTSIDE] + sorted((ROOT / "docs").glob("*.md"))
PAGES += DECISIONS
CHAPTERS = sorted((ROOT / "docs/semantics").glob("*.md"))
PAGES += CHAPTERS
INDEX = ROOT / "docs/decisions/README.md"
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def blocks(language: str, page: Path) -> list[str]:
    return [body for name, body in FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def commands() -> Iterator[str]:
    for page in PAGES:
        for block in blocks("sh", page):
            yield from block.splitlines()


FAILURE = re.search(r"^```sh\n(draftproof demo)\n```\n\n```text\n(.*?)\n```", README, re.MULTILINE | re.DOTALL)
"""The command that README's first failure comes from, and what is shown of its output."""
CLI = sorted({line for line in commands() if "draftproof " in line} - {FAILURE and FAILURE[1]})
MAKE = sorted({line for line in commands() if line.startswith("make ")})
PYTHON = [(page.name, code) for page in PAGES for code in blocks("python", page)]


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300)


def cli(line: str, folder: Path, warm: Warm) -> subprocess.CompletedProcess[str]:
    """Run a line that may begin with PYTHONPATH=FOLDER, a folder of this repository."""
    place, _, words = line.partition("draftproof ")
    path = {"PYTHONPATH": str(ROOT / place.strip().removeprefix("PYTHONPATH="))} if place else {}
    return warm.run([sys.executable, "-P", "-m", "draftproof.cli", *shlex.split(words)], folder, **path)


def test_there_is_something_to_run():
    assert len(CLI) >= 5
    assert len(PYTHON) >= 2
    assert {"make check", "make test"} <= set(MAKE)


@pytest.mark.parametrize("line", CLI)
def test_commands_end_without_a_failure(line: str, tmp_path: Path, warm: Warm):
    done = cli(line, tmp_path, warm)
    # Few scenarios are too little for every contract; one that is named is to be shown something.
    small = "--examples" in line and "faults" not in line and "--contract" not in line
    assert done.returncode in ((0, 125) if small else (0,)), done.stdout + done.stderr
    assert done.stdout.strip()
    assert all((tmp_path / name).is_file() for name in re.findall(r"--json (\S+)", line))


@pytest.mark.parametrize("line", MAKE)
def test_make_knows_the_targets(line: str):
    done = run(["make", "-n", *shlex.split(line)[1:]], ROOT)
    assert done.returncode == 0, done.stderr
    assert "draftproof" in done.stdout or "pytest" in done.stdout


@pytest.mark.parametrize(("page", "code"), PYTHON)
def test_python_runs(page: str, code: str, tmp_path: Path, warm: Warm):
    done = warm.run([sys.executable, "-P", "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_failure_shown_is_the_one_that_is_printed(tmp_path: Path, warm: Warm):
    assert FAILURE is not None
    done = cli(FAILURE[1], tmp_path, warm)
    assert done.returncode == 0
    assert " ".join(FAILURE[2].split()) in " ".join(done.stdout.split()), done.stdout
    page = (tmp_path / ".draftproof/demo/report.html").read_text(encoding="utf-8")
    assert page.count('class="first"') == 1
    assert "draftproof replay .draftproof/demo/shrunk.json" in page


def links(page: Path) -> Iterator[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    yield from re.findall(r"\]\(([^)\s]+)\)", text)
    yield from re.findall(r'(?:src|srcset|href)="([^"]+)"', text)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return set(map(anchor, headings))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path):
    relative = [link for link in links(page) if not re.match(r"[a-z]+:", link)]
    for link in relative:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_every_page_is_on_the_site():
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE))
    others = set(DECISIONS) - {INDEX}
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in set((ROOT / "docs").rglob("*.md")) - others}
    assert docs | {"index.md"} | {name.lower() for name in OUTSIDE[1:]} == listed


GENERATED = ("matrix.md", "mutation.md")


def test_lines_of_prose_are_short_and_none_begins_with_the_number_of_an_issue():
    """Some renderers take the number for a heading."""
    for page in PAGES:
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        long = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "    "))]
        assert page.name in GENERATED or long == [], page
        assert re.findall(r"^[ >*-]*#\d.*", prose, flags=re.MULTILINE) == [], page


def test_the_readme_is_short():
    assert len(README.split()) < 1050


CITED = re.compile(r"S-[A-Z]+-\d+")


def test_the_index_lists_every_decision_with_its_question():
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)
    titles = [(path.read_text(encoding="utf-8").partition("\n")[0], path.name) for path in DECISIONS if path != INDEX]
    assert sorted((f"# {title}", name) for title, name in listed) == sorted(titles)
    assert [title for title, _ in titles if not title.endswith("?")] == []


def test_decisions_are_short():
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in DECISIONS if path != INDEX}
    assert {name: count for name, count in lines.items() if count > 25} == {}
    assert sum(path.stat().st_size for path in DECISIONS) <= 50 * 1024


def test_every_decision_says_what_was_decided_and_why():
    kinds = ("Decided", "Why", "Rejected", "Known limits")
    for path in set(DECISIONS) - {INDEX}:
        found = re.findall(r"^\*\*(.+?)\.\*\*", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert found[:2] == ["Decided", "Why"], path.name
        assert found == [kind for kind in kinds if kind in found], path.name


def test_the_design_is_one_page():
    assert len((ROOT / "DESIGN.md").read_text(encoding="utf-8").splitlines()) <= 40


def test_the_limits_of_the_tutorial_are_those_of_its_example():
    page, example = (ROOT / name for name in ("docs/own-engine.md", "examples/own_engine.py"))
    shown = next(body for body in blocks("text", page) if body.startswith("limits = "))
    assert shown in re.sub(r"^    ", "", example.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_every_contract_cites_a_definition():
    from draftproof.properties.contracts.registry import ALL

    assert [contract.name for contract in ALL if not CITED.search(contract.cites)] == []


def test_every_cited_definition_exists():
    rooms = ("draftproof", "engine", "faults", "fuzz", "harness", "kernels", "properties", "reference", "report")
    rooms += ("subjects", "tracer")
    sources = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    cited = {number for path in [*sources, *PAGES] for number in CITED.findall(path.read_text(encoding="utf-8"))}
    assert cited - set(defined()) == set()


CLAUSES = (ROOT / "docs/engine-contract.md").read_text(encoding="utf-8")
CLAUSE = re.compile(r"^\*\*C(\d+)\*\* (.+?) \(([^:]+): ([^)]+)\)$")


def clauses() -> list[re.Match[str]]:
    """Return number, sentences, definitions and contracts of every clause for authors of engines."""
    paragraphs = [" ".join(one.split()) for one in CLAUSES.split("\n\n")]
    found = [CLAUSE.match(one) for one in paragraphs if one.startswith("**")]
    assert None not in found
    return [one for one in found if one]


def test_clauses_for_engines_are_numbered_and_few():
    assert [int(clause[1]) for clause in clauses()] == list(range(1, len(clauses()) + 1))
    assert len(clauses()) > 20
    assert len(CLAUSES.split()) <= 900


def test_clauses_for_engines_link_definitions_to_their_places():
    for clause in clauses():
        links = re.findall(r"\[(S-[A-Z]+-\d+)\]\(([^)]+)\)", clause[3])
        assert links, clause[1]
        assert [name for name, _ in links] == CITED.findall(clause[3]), clause[1]
        assert [(name, place) for name, place in links if place_of(name, "docs/") != place] == []


def test_clauses_for_engines_name_contracts_that_check_their_definitions():
    from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME

    for clause in clauses():
        names = clause[4].replace("`", "").split(", ")
        assert set(names) <= set(CONTRACTS_BY_NAME), clause[1]
        cited = set(CITED.findall(clause[3]))
        assert [name for name in names if not cited & set(CITED.findall(CONTRACTS_BY_NAME[name].cites))] == [], clause[
            1
        ]


def test_the_page_of_contracts_agrees_with_them():
    from draftproof.properties.contracts.registry import ALL

    text = (ROOT / "docs/contracts.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w.]+)` \| [^|]+ \| ([^|]+) \|$", text, flags=re.MULTILINE))
    assert len(rows) > 50
    # "This channel is the reference's" follows from the contract's own line; all others are explained.
    plain = {one.name for one in ALL if getattr(one.differences, "__qualname__", "").startswith("equals.")}
    explained = [one for one in ALL if one.name in rows or one.name not in plain]
    assert rows == {contract.name: contract.cites for contract in explained}
