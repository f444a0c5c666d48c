"""What a change reaches: the tests whose files import, name or read what changed, or what does so in turn.

    python -m tests.reach [--base REVISION]

Prints four lines: what `make test`, `make smoke`, `make check` and `make test-slow` are to run; `-` is nothing, an
empty line everything. Of what is slow by nature only that is run which was changed, or is about what was; the night
runs all. The base is by default where this branch left `origin/main`; on that branch itself there is none. What
cannot be placed, or compared with a base, reaches everything. All is read off the sources, and nothing of ours is
imported for it but the catalogue of faults.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from tests.layers import WORKFLOWS, has, layer
from tests.structure import ROOMS, ROOT, imported_names, imports_of, is_type_checking, module_of

EVERYTHING = (
    "Makefile",
    "constraints.txt",
    "pyproject.toml",
    ".ci/*",
    "tests/conftest.py",
    "tests/layers.py",
    "tests/reach.py",
    "tests/structure.py",
    "tests/warm.py",
)
"""What every test hangs on."""

ALWAYS = (
    "tests/properties/test_draft_kinds.py",
    "tests/test_docs.py",
    "tests/test_draws.py",
    "tests/test_errors.py",
    "tests/test_imports.py",
    "tests/test_layers.py",
    "tests/test_packaging.py",
    "tests/test_reach.py",
    "tests/test_semantics.py",
    "tests/test_shapes.py",
    "tests/test_shared.py",
    "tests/test_structure.py",
)
"""Tests that read all sources, or all pages: any change may be one of theirs."""

READS = {
    # Folders that come from a loop, which is not followed.
    "faults/catalogue.py": ("engine", "kernels"),
    "fuzz/bisect/revision.py": ("engine", "kernels"),
    "harness/remote_process.py": ("engine", "kernels", "properties", "subjects"),
    "tests/test_docs.py": (
        *("README.md", "CONTRIBUTING.md", "DESIGN.md", "CHANGELOG.md", "SKILL.md"),
        *("docs", "examples", "mkdocs.yml"),
    ),
    "tests/test_semantics.py": ("docs", "examples", "mkdocs.yml"),
}
"""What a file reads and does not name as a path."""

_NONE: frozenset[str] = frozenset()
SLOW_OF = {
    "action.yml": "tests/test_action.py",
    "benchmarks/": "tests/benchmarks/",
    "docs/": "tests/test_docs.py",
    "draftproof/": "tests/test_packaging.py tests/test_plugin.py",
    "draftproof/cli/audit": "tests/cli/test_audit.py tests/cli/test_audit_lookup.py",
    "draftproof/cli/ci.py": "tests/test_action.py",
    "draftproof/cli/compar": "tests/cli/test_compare.py",
    "draftproof/cli/kernels.py": "tests/cli/test_kernels.py",
    "examples/": "tests/test_docs.py tests/test_train_tiny.py tests/test_workflows.py",
    "faults/mutation/": "tests/faults/test_mutation.py",
    "fuzz/releases/": "tests/cli/test_release_wheels.py tests/fuzz/test_packs.py",
    "harness/audit": "tests/cli/test_audit.py tests/cli/test_audit_lookup.py tests/cli/test_compare.py",
    "kernels/": "tests/kernels/test_compile.py tests/kernels/test_lists.py",
    "kernels/eager_sampling.py": "tests/kernels/test_samplers.py",
    "kernels/triton_linear.py": "tests/engine/test_narrow_linear.py",
    "properties/features/": "tests/properties/test_draft_strategies.py tests/properties/test_strategies.py",
    "properties/kernels/": "tests/kernels/test_lists.py",
    "properties/strategies/": (
        "tests/properties/test_draft_strategies.py tests/properties/test_quantities.py"
        " tests/properties/test_strategies.py"
    ),
    "reference/": (
        "tests/reference/test_audit_batched.py tests/reference/test_real_draws.py tests/reference/test_real_logprobs.py"
        " tests/reference/test_sampled_trees.py tests/reference/test_text.py"
    ),
    "README.md": "tests/test_docs.py",
    "SKILL.md": "tests/test_docs.py tests/test_skill.py",
    "report/html/": "tests/report/test_browser.py",
    "subjects/wheels/": "tests/cli/test_release_wheels.py",
}
"""What of the slow tests is about a folder or a file, and is not left to the night where that is changed."""

CHECK = (
    "draftproof/cli/check.py",
    "engine/subject/__init__.py",
    "harness/check.py",
    "harness/kernel_check.py",
    "harness/kernel_runs.py",
)
FAULTS = ("draftproof/cli/faults_run.py", "faults/run.py")
"""Where a command, which hangs on how its result is shown as well, is given what it finds, and that is found."""
FEW = 6
"""So many of the smoke faults are tried where a change reaches their run, but touches no text of one."""
MOST = 16
"""And at most so many of those whose text it touches; the night tries all."""

_FOLDERS = (*sorted(ROOMS.values()), "benchmarks", "docs", "examples", "tests")
_DOTTED = re.compile(r"\b(?:draftproof|tests)(?:\.\w+)+")
_PUBLIC = re.compile(r"\bfrom draftproof import ([\w, ]+)")
_FACTORY = re.compile(r"^(\w+):\w*")
_PATH = re.compile(r"(?:[\w-]+/)*[\w-][\w.-]*")
_WORD = re.compile(r"\w+")
_OURS = re.compile(r"^_?[A-Z][A-Z_]*$|__file__|\broot\b")
_TELLING = (
    ast.stmt,
    ast.expr,
    ast.arguments,
    ast.comprehension,
    ast.excepthandler,
    ast.keyword,
    ast.withitem,
    ast.match_case,
)
"""What may hold an import or a string; operators and contexts do not."""
_UNAWARE = ("engine/", "kernels/", "properties/", "reference/", "report/", "subjects/")
"""Rooms to which the name of a subject is a word like others."""
_SKIPPED = ("__pycache__", ".egg-info")


@cache
def files() -> frozenset[str]:
    """Return every file that a test may be about, as a path from the root."""
    found = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*")] + list(ROOT.iterdir())
    paths = (path.relative_to(ROOT).as_posix() for path in found if path.is_file())
    return frozenset(path for path in paths if not any(part in path for part in _SKIPPED))


def module_name(path: str) -> str:
    """Return the dotted name that a Python file is imported by."""
    parts = path.removesuffix(".py").split("/")
    if parts[0] in ROOMS.values():
        parts = [next(package for package, folder in ROOMS.items() if folder == parts[0]), *parts[1:]]
    return ".".join(parts).removesuffix(".__init__")


class Sources:
    """The Python files by their modules, those that are gone among them, and what each hangs on."""

    def __init__(self, gone: Iterable[str] = ()) -> None:
        self.files = files() | frozenset(gone)
        self.python = sorted(path for path in files() if path.endswith(".py"))
        self.homes = {module_name(path): path for path in self.files if path.endswith(".py")}
        self.modules = set(self.homes)
        self.public = self._public_names()
        self.entry_points = dict(_entry_points())
        self.helpers = {Path(path).stem: [path] for path in self.python if path.startswith("tests/")}
        self.inside: dict[str, list[str]] = defaultdict(list)
        for path in self.files:
            for folder in list(Path(path).parents)[:-1]:
                self.inside[folder.as_posix()].append(path)

    def _public_names(self) -> dict[str, str]:
        """Return the module of each name of the public API, which `draftproof` imports when it is asked for."""
        tree = ast.parse((ROOT / "draftproof/__init__.py").read_text(encoding="utf-8"))
        nodes = [node for node in imports_of(tree, types=True) if isinstance(node, ast.ImportFrom)]
        return {alias.asname: node.module or "" for node in nodes for alias in node.names if alias.asname}

    def arrows(self) -> dict[str, set[str]]:
        """Return what each Python file hangs on directly."""
        found = {path: set(self._needs(path)) - {path} for path in self.python}
        # Where there is a GPU it sets an option of kernels.
        found["tests/conftest.py"] -= {path for path in self.files if path.startswith("kernels/")}
        return found

    def _needs(self, path: str) -> Iterator[str]:
        yield from self._around(path)
        for name in READS.get(path, ()):
            yield from self._below(name)
        name = module_name(path)
        package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
        found = set[str]()
        told, words = _read((ROOT / path).read_text(encoding="utf-8"))
        for node in told:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for imported in imported_names(node, package):
                    found.update(self._module(imported, path))
            elif isinstance(node, ast.Constant):
                found.update(self._named(node.value, path))
            elif isinstance(node, ast.JoinedStr):
                found.update(self._formatted(node, package))
            elif isinstance(node, ast.BinOp):
                found.update(self._joined(node, path))
        yield from (one for one in found if not one.startswith("benchmarks/") or Path(one).stem in words)

    def _around(self, path: str) -> Iterator[str]:
        """Yield what comes with a file: packages above it, fixtures, and data beside a module."""
        folders = [parent.as_posix() for parent in Path(path).parents][:-1]
        for folder in folders:
            yield from self.files.intersection({f"{folder}/__init__.py"})
            if path.startswith("tests/"):
                yield from self.files.intersection({f"{folder}/conftest.py"})
        if folders:
            yield from (one for one in self.inside[folders[0]] if _is_data_of(one, folders[0]))

    def _module(self, name: str, path: str) -> Iterator[str]:
        if name.startswith("draftproof.") and (public := self.public.get(name.removeprefix("draftproof."))):
            name = public
        if (module := module_of(name, self.modules)) is not None:
            yield self.homes[module]
        elif (beside := f"{path.rpartition('/')[0]}/{name.partition('.')[0]}.py") in self.files:
            yield beside

    def _named(self, text: str, path: str) -> Iterator[str]:
        """Yield what a string names: modules, in a program too, subjects, files and their folders."""
        for name in _DOTTED.findall(text):
            yield from self._module(name, path)
            yield from self.files.intersection({self.homes.get(f"{name}.__main__", "")})
        for names in _PUBLIC.findall(text):
            for name in names.split(","):
                yield from self._module(f"draftproof.{name.strip()}", path)
        if text in self.entry_points and not path.startswith(_UNAWARE):
            yield from self._module(self.entry_points[text], path)
        if path.endswith("/__init__.py") and text == f"{module_name(path)}.":
            yield from self._modules_in(text)
        if path.startswith("tests/") and (found := _FACTORY.match(text)):
            yield from self.helpers.get(found[1], ())
        if ("/" in text or "." in text) and _PATH.fullmatch(text):
            yield from self._path(text, path)

    def _formatted(self, node: ast.JoinedStr, package: str) -> Iterator[str]:
        """Yield the modules of a package where a name in it is made: f"draftproof.x.{name}", f"{__name__}.{name}"."""
        yield from self._modules_in(ast.unparse(node)[2:].replace("{__name__}", package).partition("{")[0])

    def _modules_in(self, start: str) -> Iterator[str]:
        """Yield the modules whose names begin with "draftproof.x."."""
        if start.count(".") > 1 and start.endswith(".") and start[:-1] in self.modules:
            yield from (home for name, home in self.homes.items() if name.startswith(start))

    def _joined(self, node: ast.BinOp, path: str) -> Iterator[str]:
        """Yield what ROOT / "docs" / "cli.md" names, or a folder of which more is asked."""
        words: list[str] = []
        start: ast.expr = node
        while isinstance(start, ast.BinOp) and isinstance(start.op, ast.Div):
            words = [start.right.value, *words] if _is_text(start.right) else []
            start = start.left
        if words and _OURS.search(ast.unparse(start)):
            yield from self._path("/".join(words), path)

    def _path(self, text: str, path: str) -> Iterator[str]:
        folder = path.rpartition("/")[0]
        is_tests = folder.startswith("tests")
        for base in ("", folder, folder.rpartition("/")[0]):
            found = self._below(f"{base}/{text}".strip("/"))
            # What names a test means its name, not what it is about; sources write pages, and read none.
            yield from (one for one in found if not is_test(one) and (is_tests or not one.endswith(".md")))

    def _below(self, name: str) -> Iterator[str]:
        yield from self.files.intersection({name})
        yield from self.inside.get(name, ())


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_data_of(path: str, folder: str) -> bool:
    """Return whether a file belongs to the modules of a folder: it lies beside them and is no module."""
    return path.rpartition("/")[0] == folder and not path.endswith((".py", ".md"))


@cache
def _read(source: str) -> tuple[tuple[ast.AST, ...], frozenset[str]]:
    """Return what a source tells of others, and its words."""
    return tuple(_told(ast.parse(source))), frozenset(_WORD.findall(source))


def _told(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the imports that running the code makes, its strings but docstrings, and what is joined by `/`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        is_joined = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        if is_joined or _is_text(node) or isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
            yield node
        for name in node._fields:
            value = getattr(node, name, None)
            for child in value if type(value) is list else (value,):
                is_docstring = type(child) is ast.Expr and type(child.value) is ast.Constant
                if isinstance(child, _TELLING) and not is_docstring and not is_type_checking(child):
                    waiting.append(child)


def _entry_points() -> Iterator[tuple[str, str]]:
    """Yield (name, module) of the subjects that are known by a name."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    part = text.partition('entry-points."draftproof.subjects"]')[2].partition("\n[")[0]
    yield from re.findall(r'^([\w-]+) = "([\w.]+):', part, re.MULTILINE)


@cache
def arrows() -> dict[str, set[str]]:
    return Sources().arrows()


def users_of(needs: Mapping[str, Set[str]]) -> dict[str, set[str]]:
    """Return what hangs directly on each file."""
    users: dict[str, set[str]] = defaultdict(set)
    for path, others in needs.items():
        for other in others:
            users[other].add(path)
    return users


@cache
def users() -> dict[str, set[str]]:
    return users_of(arrows())


def reached(changed: Set[str], users: Mapping[str, Set[str]]) -> set[str]:
    """Return the files that hang on a changed one, by however many others, and these."""
    found, waiting = set(changed), list(changed)
    while waiting:
        new = users.get(waiting.pop(), _NONE) - found
        found |= new
        waiting += new
    return found


def is_test(path: str) -> bool:
    return path.startswith("tests/") and fnmatch(path.rpartition("/")[2], "test_*.py")


def selected(changed: Set[str], gone: Set[str] = _NONE) -> set[str] | None:
    """Return the files of tests that a change reaches; None means all."""
    if any(fnmatch(path, pattern) for path in changed for pattern in EVERYTHING):
        return None
    of = users_of(Sources(gone).arrows()) if any(not is_test(path) for path in gone) else users()
    found = set[str]()
    for path in changed:
        own = {one for one in reached({path}, of) if is_test(one)}
        if not own and not (path in gone and is_test(path)):
            return None
        found |= own
    return (found | set(ALWAYS)) & files()


def is_reached(changed: Set[str], command: tuple[str, ...]) -> bool:
    """Return whether a command changed itself, or what it finds hangs on what changed."""
    itself, *finding = command
    return itself in changed or not reached(changed, users()).isdisjoint(finding)


def spread(names: list[str], most: int) -> list[str]:
    """Return at most so many of the names, from all over the list."""
    return [names[place * len(names) // most] for place in range(most)] if len(names) > most else names


def faults_of(changed: Set[str], lines: Mapping[str, Set[int]]) -> list[str]:
    """Return the faults that a change brings or whose text it touches, those of the smoke run first, then a few more.

    `lines` are those of each changed file that are new, or that stand beside what is gone.
    """
    from draftproof.faults.catalogue import SUFFIX, catalogue, read_sources
    from draftproof.faults.patching import StalePatchError, apply, by_path

    known, sources, touched = catalogue(), read_sources(), set[str]()
    for name, file in known.items():
        for path, hunks in by_path(file.hunks()).items():
            if path not in lines or path not in sources:
                continue
            try:
                placed = apply(sources[path], hunks)[1]
            except StalePatchError:
                continue  # tests of the catalogue fail
            if any(one.start + number in lines[path] for one in placed for number in range(len(one.hunk.before))):
                touched.add(name)
    touched |= {Path(path).stem for path in changed if path.endswith(SUFFIX)} & known.keys()
    smoke = [name for name, file in known.items() if file.fault.smoke]
    own = [name for name in smoke if name in touched] + sorted(touched.difference(smoke))
    few = [] if len(own) >= FEW or not is_reached(changed, FAULTS) else spread(smoke, FEW)
    return list(dict.fromkeys([*spread(own, MOST), *few]))


def git(*arguments: str) -> str | None:
    """Return what git says; None if it cannot."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def base_of(asked: str | None) -> str | None:
    """Return the commit asked for, or where this branch left main; None if it is unknown, or HEAD is main's."""
    head = git("rev-parse", "HEAD")
    if head is None:
        return None
    if asked is None:
        left = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main")
        asked = left.strip() if left and left != head else None
    found = git("rev-parse", "--verify", "--quiet", f"{asked}^{{commit}}") if asked else None
    return found.strip() if found else None


def changes(base: str) -> tuple[set[str], set[str], dict[str, set[int]]] | None:
    """Return the files that are not as they were at a commit, those of them that are gone, and the lines of engines."""
    named = git("diff", "--name-status", "--no-renames", "-z", base)
    new = git("ls-files", "--others", "--exclude-standard", "-z")
    diff = git("diff", "-U0", "--no-renames", "--no-color", base, "--", "engine", "kernels")
    if named is None or new is None or diff is None:
        return None
    words = named.split("\0")[:-1]
    status = dict(zip(words[1::2], words[::2], strict=True))
    changed = {*status, *new.split("\0")[:-1]}
    return changed, {path for path, kind in status.items() if kind == "D"}, lines_of(diff)


def lines_of(diff: str) -> dict[str, set[int]]:
    """Return the lines of each file that a diff without context adds, and the two beside what it removes."""
    found: dict[str, set[int]] = defaultdict(set)
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(match[1]), int(match[2] or 1)
            found[path] |= set(range(start, start + count)) if count else {start, start + 1}
    return found


def plan(base: str | None) -> tuple[str, str, str, str]:
    """Return what is to be run of tests, faults, the check, and tests that are slow by nature."""
    found = changes(base) if base else None
    if found is None:
        return "", "", "", "-"
    changed, gone, lines = found
    slow = " ".join(sorted(slow_of(changed - gone))) or "-"
    try:
        files = selected(changed, gone)
    except SyntaxError:
        files = None  # whatever is run says where
    if files is None:
        return "", "", "", slow
    # A file whose tests are all of another layer has none for `make test`.
    chosen = sorted(path for path in files if layer(path) not in ("slow", "long"))
    ids = faults_of(changed, lines)
    return " ".join(chosen), " ".join(f"--id {name}" for name in ids) or "-", check_of(changed), slow


def slow_of(changed: Set[str]) -> set[str]:
    """Return the slow tests that were changed themselves, or whose folder was, and whole workflows of its room."""
    found = {path for path in changed if is_test(path) and has("slow", path)}
    rooms = {path.split("/")[0] for path in changed}
    found |= {path for path in WORKFLOWS if path.split("/")[1] in rooms}
    for start, names in SLOW_OF.items():
        if any(path.startswith(start) for path in changed):
            found |= set(names.split())
    return found


def check_of(changed: Set[str]) -> str:
    return "" if is_reached(changed, CHECK) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.reach", description="Print what a change reaches.")
    parser.add_argument("--base", help="the commit to compare with; empty: everything")
    base = base_of(parser.parse_args().base)
    arguments = plan(base)
    print(*arguments, sep="\n")
    count = "everything" if not arguments[0] else f"{len(arguments[0].split())} files of tests"
    print(f"changed since {base or 'nobody knows when'}: {count}", file=sys.stderr)


if __name__ == "__main__":
    main()
