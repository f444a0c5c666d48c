"""The pytest plugin as a project meets it: in a folder of its own, with subjects that are right and wrong.

Subjects here are the reference, which needs no torch.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

import draftproof
from draftproof import plugin, pytest_checks
from draftproof.process import CRASHED
from draftproof.properties.formats.case import encode
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT
from draftproof.pytest_checks import make_subject

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from dataclasses import replace
from draftproof.subject import Limits
from draftproof.reference import run

class ReferenceSubject(run.ReferenceSubject):
    # Of scenarios with features that hang on a schedule it shows too little to be judged.
    limits = Limits(features=("data-parallel", "tensor-parallel"))

class Wrong(ReferenceSubject):
    name = "wrong"

    def run(self, scenario, script):
        trace = super().run(scenario, script)
        return replace(trace, observations=tuple(
            one._replace(value=one.value + 1) if one.channel == "verify.positions" else one
            for one in trace.observations))

class Raising(ReferenceSubject):
    def run(self, scenario, script):
        raise IndexError("page 9 is out of range")

class Silent(ReferenceSubject):
    def channels(self, scenario):
        return frozenset()

    def run(self, scenario, script):
        return replace(super().run(scenario, script), channels=frozenset(), observations=())

@pytest.fixture
def draftproof_subject():
    return ReferenceSubject()
"""
CHECK = "def test_engine(draftproof_check):\n    draftproof_check()\n"
WRONG = "from conftest import Wrong\ndef test_wrong(draftproof_check):\n    draftproof_check(Wrong())\n"
FEW = "--draftproof-examples=3"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.Pytester]:
    for name in ("GITHUB_ACTIONS", "CI", "BUILD_NUMBER"):  # pytest says more in its summary where these are set
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(plugin, "_devices", lambda: 0)
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\npythonpath = .\n")
    before = hypothesis.settings.get_current_profile_name()
    yield pytester
    hypothesis.settings.load_profile(before)


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """In this process: what takes long to import is imported above, once."""
    return project.runpytest_inprocess(*loaded(), *arguments)


def loaded() -> tuple[str, ...]:
    return () if installed() else ("-p", "draftproof.plugin")


def installed() -> bool:
    """Whether this environment loads the plugin by itself."""
    from importlib.metadata import entry_points

    return any(point.value == "draftproof.plugin" for point in entry_points(group="pytest11"))


def test_a_right_subject_passes_and_says_what_ran(project):
    project.makepyfile(CHECK)
    result = run(project, "--draftproof-examples=2")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*= draftproof =*", "2 scenarios in 1 test (1 share), 0 findings"])
    assert "::error" not in result.stdout.str()


def test_tests_that_are_deselected_are_no_reports(project):
    project.makepyfile(test_mine=CHECK + "def test_other():\n    pass\n")
    result = run(project, "-k", "engine", FEW)
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["3 scenarios in 1 test *"])


def test_a_wrong_subject_fails_with_divergence_case_and_replay(project):
    project.makepyfile(WRONG)
    result = run(project, "--draftproof-examples=2", "--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *FAIL verify.positions: *expected position *(one ahead)*first seen in verify.positions*",
            "E *case: .draftproof/cases/*/verify-positions-*.json",
            "E *replay: pytest *::test_wrong --draftproof-case .draftproof/cases/*",
            "*= draftproof =*",
            "verify.positions, replay: pytest *::test_wrong --*",
        ]
    )
    assert result.stdout.str().count("first seen in verify.positions") == 1
    found = properties(project.path / "junit.xml")
    assert found["draftproof.contract"] == "verify.positions"
    assert found["draftproof.channel"] == "verify.positions"
    assert found["draftproof.identity"] == "verify.positions | verify.positions | verify | off by ahead"
    assert found["draftproof.scenarios"] == "2"
    assert (project.path / found["draftproof.case"]).is_file()
    again = run(project, *found["draftproof.replay"].split()[1:])
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["1 scenario in 1 test (1 share), 1 finding"])


def properties(path: Path) -> dict[str, str]:
    return {one.attrib["name"]: one.attrib["value"] for one in ElementTree.parse(path).iter("property")}


SHARED = """
import pathlib
import sys
from draftproof.properties.formats.case import encode, read_case

def test_which(draftproof_scenarios, draftproof_share):
    for number, one in enumerate(draftproof_scenarios):
        pathlib.Path(f"{draftproof_share[0]}-{number}.json").write_text(encode(one))
    assert "torch" not in sys.modules, "whose subject has none is checked without it"
"""


def test_several_workers_share_the_scenarios(project):
    project.makepyfile(WRONG + CHECK + SHARED)
    result = run(project, "-n", "2", FEW, "--draftproof-seed=3")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] in (1, 2)  # one share may have no draft with such positions
    assert outcomes["failed"] + outcomes["passed"] == 6
    result.stdout.fnmatch_lines(["6 scenarios in 2 tests (4 shares), * finding*", "*replay: pytest *::test_wrong --*"])
    assert "share1of2" in result.stdout.str()
    made = [path.read_text() for path in sorted(project.path.glob("*-*.json"))]
    assert len(made) == 3
    assert set(made) == {encode(one) for one in draftproof.generate(3, 3, ALGORITHMS)}


def test_a_campaign_goes_by_time_and_workers_by_seeds(project):
    project.makepyfile(
        """
        import itertools
        from draftproof.pytest_checks import _BLOCK, ProfileScenarios

        def test_time(draftproof_scenarios):
            assert (draftproof_scenarios.count, draftproof_scenarios.seconds) == (0, 1.0)
            assert 0 < len(list(draftproof_scenarios)) < 10_000

        def test_seeds(monkeypatch):
            seeds = []
            monkeypatch.setattr("draftproof.pytest_checks.generate", lambda seed, *_: seeds.append(seed) or [seed] * 2)
            for share in (0, 1):
                list(itertools.islice(ProfileScenarios(seed=5, count=0, seconds=9, share=(share, 2)), 6))
            assert seeds == [5, 7, 9, 6, 8, 10]
        """
    )
    run(project, "--draftproof-profile=campaign", "--draftproof-time=1s").assert_outcomes(passed=2)


def test_crashes_and_empty_traces_fail(project):
    project.makepyfile(
        """
        import pytest
        from conftest import Raising, ReferenceSubject, Silent

        def test_crash(draftproof_check):
            draftproof_check(Raising())

        def test_silent(draftproof_check):
            draftproof_check(Silent())

        def test_strict(draftproof_check):
            with pytest.raises(AssertionError, match="INCONCLUSIVE: not enough was exercised to judge"):
                draftproof_check(strict=True)

        def test_one_contract(draftproof_check):
            judged = draftproof_check(contracts=["output.lossless"]).contracts
            assert [one.name for one in judged] == ["output.lossless"]
            with pytest.raises(ValueError, match="invalid contract 'no': expected "):
                draftproof_check(contracts=["no"])
        """
    )
    result = run(project, "--draftproof-examples=1")
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*CRASH crash: IndexError: page 9 is out of range, in *",
            "*Traceback (most recent call last):*",
            "*INCONCLUSIVE: reference reports nothing that any contract could judge*",
            "*: not enough was exercised to judge *",
        ]
    )


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("leave(0)", CRASHED, "CRASH: the process of the command ended (exit 0) before there was a verdict"),
        ("atexit.register(leave, 0)\n    assert False", pytest.ExitCode.TESTS_FAILED, ""),
        ("pass", pytest.ExitCode.OK, ""),
    ],
)
def test_a_session_that_ends_in_c_is_not_green(project, body, code, says):
    project.makepyfile(f"import atexit, ctypes\nleave = ctypes.CDLL(None)._exit\ndef test_engine():\n    {body}")
    (project.path / "conftest.py").unlink()
    result = project.runpytest_subprocess(*loaded(), "-q", FEW)
    assert (result.ret, result.stderr.str().strip()) == (code, says)


def test_a_subject_of_ones_own_with_given(project):
    project.makepyfile(
        """
        import hypothesis
        from hypothesis import given
        from conftest import ReferenceSubject, Wrong
        from draftproof.properties.features import aborts, overlap
        from draftproof.properties.strategies.drawn import scenarios
        from draftproof.pytest_checks import assert_holds

        # It goes on with what is aborted, and cuts what an overlap commits: when that is, only a subject says.
        @hypothesis.settings(max_examples=4)
        @given(scenarios(draft="eagle"))
        def test_right(scenario):
            assert_holds(ReferenceSubject(), overlap.FEATURE.without(aborts.FEATURE.without(scenario)))

        @hypothesis.settings(phases=[hypothesis.Phase.generate], report_multiple_bugs=False)
        @given(scenarios(draft="eagle"))
        def test_wrong(scenario):
            assert_holds(Wrong(), overlap.FEATURE.without(aborts.FEATURE.without(scenario)))

        def test_settings():
            chosen = hypothesis.settings()
            assert (chosen.max_examples, chosen.derandomize, chosen.print_blob) == (60, True, True)
            assert chosen.deadline is None
        """
    )
    result = run(project, "--draftproof-profile=ci")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*- draftproof -*", "FAIL verify.positions: *", "  replay: pytest *::test_wrong"])


def test_annotations_only_on_github_and_escaped(project, monkeypatch):
    project.makepyfile(WRONG)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path.parent))
    result = run(project, "--draftproof-examples=2")
    told = [line for line in result.outlines if line.startswith("::error")]
    assert len(told) == 1
    file = f"{project.path.name}/test_annotations_only_on_github_and_escaped.py"
    assert told[0].startswith(f"::error file={file},line=2,title=Draftproof%3A verify.positions::verify.positions: ")
    assert "%0Apytest " in told[0]


@pytest.mark.skipif(plugin._devices() > 0, reason="there is a CUDA device")
def test_a_device_that_is_not_here_is_named():
    with pytest.raises(ValueError, match="invalid --draftproof-device 'cuda': expected cpu"):
        make_subject(BUILT_IN_SUBJECT, "cuda")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draftproof-profile=always"], "invalid choice: 'always'"),
        (["--draftproof-device=tpu"], "invalid choice: 'tpu'"),
        (["--draftproof-seed=-1"], "invalid --draftproof-seed -1: expected 0 or more"),
        (["--draftproof-examples=0"], "invalid --draftproof-examples 0: expected 1 or more"),
        (["--draftproof-subject=a b"], "invalid --draftproof-subject 'a b': expected package.module:name"),
        (
            ["--draftproof-case=no.json"],
            "invalid --draftproof-case 'no.json': expected a case file or a scenario; no.json: cannot be",
        ),
        (
            ["--draftproof-case=broken.json"],
            "invalid --draftproof-case 'broken.json': expected a case file or a scenario; broken",
        ),
        (
            ["--draftproof-time=never"],
            "invalid --draftproof-time 'never': expected a number with a unit",
        ),
        (["--draftproof-device=cuda"], "invalid --draftproof-device 'cuda': expected cpu"),
        (["--draftproof-mtp"], "invalid --draftproof-mtp: expected only together with --draftproof-model"),
        (
            ["--draftproof-model=M", "--draftproof-mtp", "--draftproof-draft=mtp"],
            "invalid --draftproof-mtp with --draftproof-draft mtp: expected --draftproof-draft eagle alone",
        ),
        (
            ["--draftproof-model=M", "--draftproof-draft=dflash"],
            "invalid --draftproof-draft 'dflash': expected --draftproof-draft-model with its checkpoint",
        ),
    ],
)
def test_wrong_options_are_named(project, arguments, message):
    project.makepyfile(CHECK)
    project.path.joinpath("broken.json").write_text('{"scenario": {"model"')
    result = run(project, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_a_folder_that_pytest_takes_for_one_of_tests_is_told(project, tmp_path):
    project.makepyfile(CHECK)
    result = run(project, "--draftproof-model", str(tmp_path))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"expected --draftproof-model={tmp_path}, as pytest takes it for tests" in result.stderr.str()


def test_a_subject_by_its_name(project):
    project.makepyfile(
        mine="from draftproof.reference.run import ReferenceSubject as Mine\nclass Other(Mine):\n    name = 'other'\n"
    )
    (project.path / "conftest.py").unlink()
    project.makepyfile("def test_name(draftproof_subject):\n    assert draftproof_subject.name == 'other'\n")
    run(project, "--draftproof-subject=mine:Other").assert_outcomes(passed=1)
    result = run(project, "--draftproof-subject=mine:Nobody")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*invalid --draftproof-subject 'mine:Nobody': expected a module and a name in it: *"])


RANKS = """
def test_ranks(draftproof_check, draftproof_rank_scenarios):
    given = list(draftproof_rank_scenarios)
    assert all(one.ranks.size > 1 for one in given)
    assert {one.ranks.tensor > 1 for one in given} == {False, True}
    assert draftproof_check(scenarios=given).scenarios == len(given) == 2
"""


def test_scenarios_of_ranks_run_here_or_say_what_is_missing(project, monkeypatch):
    project.makepyfile(RANKS)
    monkeypatch.setattr(pytest_checks, "generate", cache(draftproof.generate))
    run(project, "--draftproof-examples=2").assert_outcomes(passed=1)
    for devices, told in ((1, "1"), (2, "")):
        monkeypatch.setattr(plugin, "_devices", lambda devices=devices: devices)
        result = run(project, "-rs", "--draftproof-examples=2", "--draftproof-device=cuda")
        result.assert_outcomes(**({"skipped": 1} if told else {"passed": 1}))
        if told:
            result.stdout.fnmatch_lines(["SKIPPED*ranks with --draftproof-device=cuda: needs two CUDA devices, 1 here"])
    result = run(project, "-rs", "--draftproof-examples=2", "--draftproof-model=M")
    result.stdout.fnmatch_lines(["SKIPPED*ranks are of probes only, not of --draftproof-model"])


MARKED = """
import pytest

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.gpu
def test_gpu(): pass

@pytest.mark.multigpu
def test_multigpu(): pass
"""


def test_markers_skip_visibly_where_they_are_heeded(project, monkeypatch):
    project.makepyfile(MARKED)
    run(project, "--strict-markers").assert_outcomes(passed=3)
    result = run(project, "-rs", "--draftproof-profile=ci")
    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines_random(
        [
            "SKIPPED*runs with --draftproof-profile=nightly or campaign",
            "SKIPPED*needs a CUDA device, none here",
            "SKIPPED*needs two CUDA devices, none here",
        ]
    )
    run(project, "--draftproof-profile=nightly").assert_outcomes(skipped=2, passed=1)
    monkeypatch.setattr(plugin, "_devices", lambda: 1)
    run(project, "--draftproof-profile=campaign").assert_outcomes(skipped=1, passed=2)
    monkeypatch.setattr(plugin, "_devices", lambda: 2)
    project.makeini("[pytest]\ndraftproof_markers = true\n")
    run(project).assert_outcomes(skipped=1, passed=2)


def test_markers_are_heeded_in_tests_with_our_fixtures(project):
    project.makepyfile(f"import pytest\npytestmark = pytest.mark.slow\n{CHECK}\ndef test_other(): pass\n")
    run(project, "-rs").assert_outcomes(skipped=1, passed=1)


def test_who_does_not_use_it_pays_nothing(project):
    (project.path / "conftest.py").unlink()
    project.makepyfile(
        """
        import sys

        def test_nothing_of_ours_is_imported():
            ours = {name for name in sys.modules if name.startswith("draftproof.")}
            named = {f"draftproof.properties{part}" for part in ("", ".values", ".values.names")}
            plugin = {"plugin", "pytest_apart", "pytest_options", "pytest_summary"}
            assert ours <= {f"draftproof.{name}" for name in plugin} | named
            assert not {"torch", "numpy", "msgspec"} & set(sys.modules)
        """
    )
    result = project.runpytest_subprocess(*loaded(), "-p", "no:hypothesispytest", timeout=120)
    result.assert_outcomes(passed=1)
    assert "draftproof" not in "".join(line for line in result.outlines if not line.startswith("plugins:"))


def test_importing_the_plugin_imports_no_torch():
    heavy = {"torch", "numpy", "hypothesis", "draftproof.engine"}
    program = f"import sys, draftproof.plugin; print(*({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
