"""The public API is four sorted lists; importing it imports no engine, and examples and pages import nothing else."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import draftproof
from draftproof import op, subject, tracer
from tests.named import named

ROOT = Path(__file__).resolve().parents[2]
NAMES = [
    "CheckReport",
    "ContractError",
    "Divergence",
    "DraftproofError",
    "EngineSubject",
    "Evidence",
    "Judgement",
    "Outcome",
    "SubjectCrashedError",
    "UnfitError",
    "Verdict",
    "assert_holds",
    "check",
    "checkpoint_scenarios",
    "conformance",
    "fit",
    "generate",
    "judge",
    "read_case",
    "run",
    "scenarios",
]
MODULES = {"draftproof": draftproof, "draftproof.subject": subject, "draftproof.op": op, "draftproof.tracer": tracer}
SHOWN = [ROOT / "README.md", *sorted(ROOT.glob("examples/**/*.*")), *sorted(ROOT.glob("docs/*.md"))]
SHOWN = [path for path in SHOWN if "__pycache__" not in path.parts]
CHAPTERS = sorted(ROOT.glob("docs/semantics/*.md"))
_MODULE = r"(draftproof(?:\.\w+)*)"
_USES = re.compile(rf"^\s*(?:>>> )?(?:from|import) {_MODULE}|python -m {_MODULE}", re.MULTILINE)


def test_the_public_names_are_these():
    assert draftproof.__all__ == NAMES


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_sorted_and_say_what_they_are(name: str):
    module = MODULES[name]
    assert sorted(module.__all__) == module.__all__
    assert all(getattr(module, one).__doc__ for one in module.__all__)


def test_every_public_name_has_one_home():
    names = [name for module in MODULES.values() for name in module.__all__]
    assert len(set(names)) == len(names)


def test_no_public_parameter_ends_with_an_underscore():
    public = [getattr(module, name) for module in MODULES.values() for name in module.__all__]
    own = [one for one in public if inspect.isfunction(one) or one.__module__.startswith("draftproof")]
    methods = [method for one in own if inspect.isclass(one) for _, method in inspect.getmembers(one, callable)]
    functions = [one for one in (*own, *methods) if inspect.isfunction(one)]
    assert len(functions) > 40
    assert [one for one in functions if any(name.endswith("_") for name in inspect.signature(one).parameters)] == []


class Declaring(subject.Subject):
    """It runs nothing, and declares what it is told."""

    name = "mine"

    def __init__(self, channels: object = frozenset()) -> None:
        self.declared = channels

    def channels(self, scenario):
        return self.declared

    def run(self, scenario, script):
        return subject.Trace(self.name, frozenset(), ())


SCENARIO = named("eagle_padded")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: draftproof.EngineSubject(device="tpu"), "invalid device 'tpu': expected cpu or cuda"),
        (lambda: draftproof.read_case("nosuch.json"), "nosuch.json: cannot be read: No such file or directory"),
        (lambda: draftproof.read_case({}), "invalid path {}: expected that of a case file"),
        (lambda: draftproof.run(Declaring(), None), "invalid scenario None: expected a draftproof.subject.Scenario"),
        (
            lambda: draftproof.run(Declaring({"round.draft"}), SCENARIO),
            "invalid channel 'round.draft' of mine: expected",
        ),
        (lambda: draftproof.check(Declaring({"round.draft"}), [SCENARIO]), "did you mean round.drafts?"),
        (lambda: draftproof.check(Declaring("x"), [SCENARIO]), "invalid channels 'x' of mine: expected a set of names"),
        (lambda: draftproof.check(Declaring(), SCENARIO), "expected None, or a list of scenarios"),
        (lambda: draftproof.check(Declaring(), count=0), "invalid count 0: expected a whole number, 1 or more"),
        (lambda: draftproof.fit(SCENARIO, subject.Limits(max_rows=-1)), "invalid max_rows -1: expected"),
        (lambda: draftproof.judge(None), "invalid evidence None: expected an Evidence"),
        (lambda: op.cases("rop", 0, 1), "invalid op 'rop': expected one of"),
        (lambda: op.cases("rope", 0, 0), "invalid count 0: expected"),
        (lambda: op.kernel_cases("rop"), "did you mean rope?"),
        (lambda: op.diverges("rop", None, "cpu"), "invalid op 'rop': expected one of"),
    ],
)
def test_input_that_cannot_be_is_named(call: Callable[[], object], said: str):
    with pytest.raises(draftproof.DraftproofError, match=re.escape(said)):
        call()


@pytest.mark.parametrize(("name", "others"), [("draftproof", ()), ("draftproof.subject", ("properties", "subject"))])
def test_importing_it_imports_no_engine_and_no_torch(name: str, others: tuple[str, ...]):
    code = f"import {name}, sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    modules = done.stdout.split()
    assert name in modules, done.stderr
    assert not {"torch", "triton", "hypothesis"} & set(modules)
    assert {one.split(".")[1] for one in modules if one.startswith("draftproof.")} == set(others)


def used(text: str) -> set[str]:
    """Return the modules of ours that a text imports, or runs."""
    return {one or other for one, other in _USES.findall(text)}


def test_examples_and_pages_import_public_modules_only():
    wrong = {path.name: used(path.read_text(encoding="utf-8")) - MODULES.keys() for path in SHOWN if path.is_file()}
    assert {name: modules for name, modules in wrong.items() if modules} == {}
    assert used((ROOT / "examples/own_engine.py").read_text(encoding="utf-8")) == {"draftproof", "draftproof.subject"}


def test_chapters_take_public_names_from_public_modules():
    """What else they import is of the reference: they show what definitions come to."""
    imports = [
        (path.name, module, name)
        for path in CHAPTERS
        for module, names in re.findall(rf"^>>> from {_MODULE} import (.+)$", path.read_text(), re.MULTILINE)
        for name in names.split(", ")
    ]
    assert len(imports) > 10
    public = {name for module in MODULES.values() for name in module.__all__}
    assert [one for one in imports if one[2] in public and one[1] not in MODULES] == []


def test_another_import_would_be_seen():
    assert used("    from draftproof.properties.lib.errors import X\n") == {"draftproof.properties.lib.errors"}
    assert used(">>> import draftproof.harness.check") == {"draftproof.harness.check"}
    assert used("python=$(python -m draftproof.fuzz.releases)") == {"draftproof.fuzz.releases"}


def test_the_page_of_the_api_lists_the_public_names():
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    listed = [(match, match.rpartition(".")) for match in re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE)]
    public = {name for module in MODULES.values() for name in module.__all__}
    assert sorted(name for _, (_, _, name) in listed) == sorted(public)
    assert all(hasattr(importlib.import_module(module), name) for _, (module, _, name) in listed)
    assert set(re.findall(r"`(draftproof[\w.]*)`", page)) >= set(MODULES)
