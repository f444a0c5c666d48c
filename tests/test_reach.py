"""A change selects the tests that it reaches, and what cannot be placed selects all of them."""

import subprocess

import pytest

from tests import reach
from tests.layers import WORKFLOWS, has, layer

EVERY = frozenset(path for path in reach.files() if reach.is_test(path))


def rooms(paths: set[str] | None) -> set[str]:
    """Return the folders of tests that were selected, but of those that are always."""
    assert paths is not None
    return {path.split("/")[1] for path in paths.difference(reach.ALWAYS)}


def test_a_change_of_the_report_selects_its_tests_and_none_of_the_engine():
    for path in ("report/html/page.py", "report/text.py", "report/html/report.css"):
        found = reach.selected({path})
        assert {"report", "cli"} <= rooms(found), path
        assert not rooms(found) & {"engine", "kernels", "reference", "graphs", "named"}, path
        assert {"tests/test_docs.py", "tests/test_structure.py"} <= set(found or ())


def test_a_change_of_a_scenario_selects_nearly_all():
    found = reach.selected({"properties/values/scenario.py"})
    assert found is not None
    assert len(found) > 0.85 * len(EVERY)
    assert "tests/test_distribution.py" not in found


def test_a_change_of_the_reference_alone_selects_no_tests_of_kernels():
    found = reach.selected({"reference/probe/target.py"})
    assert found is not None
    assert "tests/reference/test_probe.py" in found
    assert "tests/kernels/test_eager.py" not in found


def test_a_change_of_the_engine_selects_no_tests_of_what_knows_no_engine():
    found = reach.selected({"engine/scheduler.py"})
    assert found is not None
    assert "tests/engine/test_scheduler.py" in found
    assert "tests/reference/test_probe.py" not in found
    assert "tests/kernels/test_eager.py" not in found


@pytest.mark.parametrize(
    ("path", "test"),
    [
        # By an import, of a package that imports, and from inside of a function.
        ("engine/scheduler.py", "tests/engine/test_scheduler.py"),
        ("properties/features/trees.py", "tests/properties/test_trees.py"),
        ("reference/ops/__init__.py", "tests/kernels/test_twins.py"),
        # By a public name, which is imported when it is used.
        ("properties/strategies/scenarios.py", "tests/test_plugin.py"),
        # By a name that is put together, or that a command has.
        ("engine/drafts/ngram.py", "tests/engine/test_drafts.py"),
        ("kernels/eager_attention.py", "tests/engine/test_subject.py"),
        ("reference/drafts/mtp.py", "tests/reference/test_run.py"),
        ("draftproof/cli/doctor.py", "tests/cli/test_commands.py"),
        # By an entry point, and by a factory that a worker imports.
        ("subjects/sglang/__init__.py", "tests/subjects/test_sglang.py"),
        ("tests/harness/worker_subjects.py", "tests/harness/test_workers.py"),
        # Programs, data, pages and fixtures.
        ("tests/kernels/lane.py", "tests/kernels/test_interpreted.py"),
        ("tests/named/ends.json", "tests/named/test_named.py"),
        ("faults/known/stop-tail-kept.fault", "tests/faults/test_run.py"),
        ("faults/mutation/triage.toml", "tests/faults/test_mutation.py"),
        ("benchmarks/transfers.py", "tests/engine/test_transfers.py"),
        ("examples/own_engine.py", "tests/test_examples.py"),
        ("docs/cli.md", "tests/cli/test_selected.py"),
        ("docs/decisions/leaks.md", "tests/test_docs.py"),
        ("README.md", "tests/test_docs.py"),
        ("tests/cli/conftest.py", "tests/cli/test_commands.py"),
    ],
)
def test_what_a_test_hangs_on_selects_it(path, test):
    assert path in reach.files()
    found = reach.selected({path})
    assert found is not None
    assert test in found


def test_a_test_selects_itself():
    assert reach.selected({"tests/engine/test_pages.py"}) == {"tests/engine/test_pages.py", *reach.ALWAYS}


def test_a_new_test_selects_itself(monkeypatch, tmp_path):
    new = "tests/engine/test_new.py"
    monkeypatch.setattr(reach, "files", lambda: EVERY | {new})
    monkeypatch.setattr(reach, "users", lambda: reach.users_of({new: {"engine/pages.py"}}))
    assert reach.selected({new}) == {new, *reach.ALWAYS}
    assert new in (reach.selected({"engine/pages.py"}) or ())


def test_a_deleted_module_selects_what_imported_it(monkeypatch):
    there = reach.files()
    monkeypatch.setattr(reach, "files", lambda: there - {"engine/pages.py"})
    monkeypatch.setattr(reach, "users", dict)  # as if the module had never been there
    gone = frozenset({"engine/pages.py"})
    found = reach.selected(gone, gone)
    assert found is not None
    assert "tests/engine/test_pages.py" in found
    assert "tests/properties/test_relations.py" not in found


def test_a_deleted_test_selects_nothing_more():
    gone = frozenset({"tests/engine/test_gone.py"})
    assert reach.selected(gone, gone) == set(reach.ALWAYS)


@pytest.mark.parametrize(
    "path", ["pyproject.toml", "constraints.txt", "Makefile", ".ci/run", "tests/conftest.py", "LICENSE", "new/thing.c"]
)
def test_what_cannot_be_placed_selects_all(path):
    assert reach.selected({path}) is None
    assert reach.selected({path, "report/text.py"}) is None


def test_no_source_is_beyond_all_tests():
    """What no test hangs on would run everything, and says that the arrows miss something."""
    folders = tuple(f"{folder}/" for folder in reach.ROOMS.values())
    ours = {path for path in reach.files() if path.startswith(folders)}
    assert {path for path in ours if not any(map(reach.is_test, reach.reached({path}, reach.users())))} == set()


def test_tests_that_are_always_selected_are_there():
    assert set(reach.ALWAYS) <= EVERY
    assert {layer(path) for path in reach.ALWAYS} <= {"fast", None}


def test_a_check_is_run_where_it_is_reached():
    reaching = ("engine/scheduler.py", "properties/judge.py", "kernels/eager_ring.py", "draftproof/cli/check.py")
    assert {reach.check_of({path}) for path in reaching} == {""}
    # How a verdict is shown is no part of it: tests of the command line have checks of their own.
    others = ("report/text.py", "draftproof/cli/screen.py", "docs/cli.md", "tests/warm.py", "benchmarks/bench.py")
    assert {reach.check_of({path}) for path in others} == {"-"}


def test_faults_whose_text_is_touched_are_tried():
    from draftproof.faults.catalogue import read_sources

    path = "engine/drafts/eagle.py"
    lines = read_sources()[path].splitlines()
    place = lines.index("            positions.add_(1)") + 1
    found = reach.faults_of({path}, {path: {place}})
    assert found[0] == "draft-positions-advanced-early"
    assert reach.FEW <= len(found) <= reach.MOST + reach.FEW
    everywhere = reach.faults_of({path}, {path: set(range(1, len(lines) + 1))})
    assert reach.FEW <= len(everywhere) <= reach.MOST
    assert len(reach.faults_of({"properties/judge.py"}, {})) == reach.FEW
    assert reach.faults_of({"docs/cli.md"}, {}) == []
    assert "stop-tail-kept" in reach.faults_of({"faults/known/stop-tail-kept.fault"}, {})


def test_what_is_slow_is_run_where_it_was_changed_or_is_about_it():
    assert reach.slow_of({"tests/kernels/test_interpreted.py", "tests/engine/test_pages.py"}) == {
        "tests/kernels/test_interpreted.py"
    }
    assert reach.slow_of({"report/html/page.py"}) == {"tests/report/test_browser.py"}
    assert reach.slow_of({"report/text.py"}) == set()
    tracers = {path for path in WORKFLOWS if path.startswith("tests/tracer/")}
    assert tracers
    assert reach.slow_of({"tracer/architectures.py"}) == tracers


@pytest.mark.parametrize(("start", "names"), reach.SLOW_OF.items())
def test_folders_with_slow_tests_of_their_own_are_there(start, names):
    assert any(path.startswith(start) for path in reach.files())
    for name in names.split():
        assert any(has("slow", path) for path in EVERY if path.startswith(name)), name


def test_lines_of_a_diff():
    diff = "--- a/engine/x.py\n+++ b/engine/x.py\n@@ -3 +3,2 @@ def f():\n-a\n+b\n+c\n@@ -9,2 +9,0 @@\n-d\n-e\n"
    assert reach.lines_of(diff) == {"engine/x.py": {3, 4, 9, 10}}


@pytest.fixture
def history(tmp_path, monkeypatch):
    """A repository with a branch that left main two commits ago."""

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.setattr(reach, "ROOT", tmp_path)
    git("init", "-q", "-b", "main")
    commits = []
    for name in ("first", "second", "third"):
        if name == "second":
            git("checkout", "-q", "-b", "branch")
        (tmp_path / "file.py").write_text(name)
        git("add", ".")
        git("commit", "-q", "-m", name)
        commits.append(git("rev-parse", "HEAD"))
    return git, commits


def test_a_branch_is_compared_with_where_it_left(history):
    _, (first, _, _) = history
    assert reach.base_of(None) == first


def test_main_is_compared_with_nothing_unless_a_base_is_given(history):
    git, (_, second, _) = history
    git("checkout", "-q", "-B", "main")
    assert reach.base_of(None) is None
    assert reach.base_of(second) == second


def test_without_a_base_everything_is_reached(history, monkeypatch, tmp_path):
    git, _ = history
    assert reach.base_of("") is None
    assert reach.base_of("0" * 40) is None
    git("checkout", "-q", "main")
    assert reach.base_of(None) is None
    monkeypatch.setattr(reach, "ROOT", tmp_path / "nowhere")
    assert reach.base_of(None) is None
    assert reach.plan(None) == ("", "", "", "-")


def test_changes_are_what_is_new_changed_or_gone(history, tmp_path):
    git, (first, *_) = history
    (tmp_path / "kept.py").write_text("")
    (tmp_path / "file.py").unlink()
    changed, gone, lines = reach.changes(first) or (set(), set(), {})
    assert (changed, gone, lines) == ({"file.py", "kept.py"}, {"file.py"}, {})
    git("add", "kept.py")
    assert (reach.changes(first) or ())[0] == changed
