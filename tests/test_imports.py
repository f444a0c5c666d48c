"""Who may import whom, read from the sources."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure import parsed

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("properties", "subjects", "reference", "kernels", "engine", "harness", "tracer", "faults", "fuzz", "report")
FOLDERS += ("draftproof",)
SENT = ("draftproof.properties.values", "draftproof.properties.formats", "draftproof.properties.lib")
"""What is stored and sent, and helpers: all that a subject in another Python has of `properties`."""
ALLOWED = {
    "properties": ("draftproof.properties",),
    "kernels": ("draftproof.kernels",),
    # Beside values: what it takes of a subject, how far rounding may go, and what a variant changes of a scenario.
    "reference": (
        "draftproof.reference",
        *SENT,
        "draftproof.properties.validate",
        "draftproof.properties.weights",
        "draftproof.properties.evidence.observed_run",
        "draftproof.properties.evidence.tolerances",
        "draftproof.properties.variants",
    ),
    # What a checkpoint's files say is a format of Hugging Face's, read once for both sides.
    "engine": (
        "draftproof.engine",
        "draftproof.kernels",
        "draftproof.properties.lib",
        "draftproof.properties.formats.checkpoint_config",
    ),
    "engine/subject": ("draftproof.engine", "draftproof.kernels", *SENT, "draftproof.properties.weights"),
    "subjects": ("draftproof.subjects", *SENT),
    # Functions of other engines that run inside of ours.
    "subjects/sglang": (
        "draftproof.subjects",
        "draftproof.engine",
        "draftproof.kernels",
        *SENT,
    ),
    "harness": ("draftproof",),
    "tracer": ("draftproof",),
    "faults": ("draftproof",),
    "fuzz": ("draftproof",),
    "report": ("draftproof",),
    "draftproof": ("draftproof",),
}


def imports(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of every import, relative ones resolved against `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def rule(path: str) -> tuple[str, ...]:
    for folder in ("engine/subject", "subjects/sglang"):
        if path.startswith(folder):
            return ALLOWED[folder]
    return ALLOWED[path.split("/")[0]]


def broken(path: str, source: str) -> list[str]:
    """What a file imports and must not."""
    package = "draftproof" if path.startswith("draftproof/") else "draftproof." + path.split("/")[0]
    wrong = []
    for name, line in imports(parsed(source), package):
        bare = name.split(".")[0] in FOLDERS and name.split(".")[0] != "draftproof"
        ours = name.split(".")[0] == "draftproof"
        if bare or (ours and not any(f"{name}.".startswith(f"{allowed}.") for allowed in rule(path))):
            wrong.append(f"{path}:{line} imports {name}")
    return wrong


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_follow_the_rules(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    paths = [(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in files]
    assert [line for path, source in paths for line in broken(path, source)] == []


def users_of_the_command_line(path: str, source: str) -> list[str]:
    """What a file outside of the command line imports from it."""
    package = "draftproof" if path.startswith("draftproof/") else "draftproof." + path.split("/")[0]
    if path.startswith("draftproof/cli/"):
        return []
    return [name for name, _ in imports(parsed(source), package) if f"{name}.".startswith("draftproof.cli.")]


def test_nobody_imports_the_command_line():
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    paths = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    assert [(path, users) for path, source in paths.items() if (users := users_of_the_command_line(path, source))] == []
    assert users_of_the_command_line("report/x.py", "def f():\n    from draftproof.cli import screen")
    assert users_of_the_command_line("draftproof/x.py", "from .cli.inputs import InputError")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("reference/x.py", "from draftproof.engine import cache"),
        ("reference/x.py", "import draftproof.kernels.ring"),
        ("reference/x.py", "from draftproof.properties.strategies import scenarios"),
        ("reference/x.py", "from draftproof.properties.evidence.evidence import Evidence"),
        ("reference/x.py", "from draftproof.properties.evidence.schedule import ObservedSchedule"),
        ("properties/x.py", "from draftproof.reference.solve import solve"),
        ("properties/x.py", "from draftproof import engine"),
        ("kernels/x.py", "def f():\n    from draftproof.engine.pages import PagePool"),
        ("engine/x.py", "from draftproof.properties.values.trace import Trace"),
        ("fuzz/x.py", "import kernels"),
        ("engine/x.py", "from ..reference import solve"),
        ("subjects/x.py", "from draftproof.reference.solve import solve"),
        ("subjects/x.py", "def f():\n    from draftproof.properties.fit import fit"),
    ],
)
def test_a_forbidden_import_is_seen(path, source):
    assert len(broken(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("reference/x.py", "from draftproof.properties.values.trace import Trace"),
        ("reference/x.py", "from draftproof.properties.evidence.observed_run import ObservedRun"),
        ("engine/subject/x.py", "from draftproof.properties.values.trace import Trace"),
        ("engine/x.py", "from draftproof.kernels import kv_write"),
    ],
)
def test_an_allowed_import_is_not(path, source):
    assert broken(path, source) == []


def imports_at_import_time(node: ast.AST) -> Iterator[str]:
    """Names that running a module imports: everything outside of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from (name for name, _ in imports(child, "draftproof.engine"))
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports_at_import_time(child)


def test_the_engine_imports_transformers_nowhere_at_top_level():
    for file in sorted((ROOT / "engine").rglob("*.py")):
        names = list(imports_at_import_time(parsed(file.read_text(encoding="utf-8"))))
        assert [name for name in names if name.split(".")[0] == "transformers"] == [], file.name
    assert list(imports_at_import_time(parsed("if x:\n    import transformers"))) == ["transformers"]


@pytest.mark.parametrize("package", ["values", "evidence", "coverage"])
def test_importing_what_traces_are_made_of_imports_no_torch(package):
    """Every module of the package, in a process of its own."""
    files = sorted((ROOT / "properties" / package).glob("*.py"))
    names = [f"draftproof.properties.{package}.{file.stem}" for file in files if file.stem != "__init__"]
    assert names
    code = f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
