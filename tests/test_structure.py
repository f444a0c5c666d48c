"""The shape of the sources: no import cycles, rooms that know their neighbours, small files, one class a name."""

import ast
import statistics
from collections import defaultdict
from collections.abc import Collection

import pytest

from tests.structure import ROOMS, ROOT, cycles, graph, imported_names, imports_of, module_of, sources

FLOORS = (
    ("kernels", "properties"),
    ("reference", "engine"),
    ("subjects",),
    ("harness",),
    # A black-box test of a checkpoint's engine may run a subject.
    ("tracer",),
    ("faults",),
    # A campaign and a bisection can put a fault into the engine.
    ("fuzz",),
    ("report",),
    ("draftproof",),
)
"""The rooms, the ground first: each looks at itself and at those below it (CONTRIBUTING.md)."""
UPWARD: dict[tuple[str, str], str] = {}
"""Imports that lead up or sideways all the same, each with its reason: (module, module), of which there are two at
most."""


def lies_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def room_of(module: str) -> str:
    """Return the room of a module; the package itself is the top one."""
    name = module.split(".")[1] if "." in module else ""
    return name if any(name in rooms for rooms in FLOORS) else "draftproof"


def wrong_arrows(arrows: dict[str, frozenset[str]]) -> list[str]:
    """Return the imports that lead out of a room to where it may not look."""
    height = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    return [
        f"{module} imports {other}"
        for module, others in sorted(arrows.items())
        for other in sorted(others)
        if room_of(module) != room_of(other) and height[room_of(module)] <= height[room_of(other)]
        if (module, other) not in UPWARD
    ]


EXTRAS = {
    "cluster": ("draftproof.harness.cluster", "draftproof.faults.on_nodes"),
    "releases": ("draftproof.fuzz.releases", "draftproof.report.release_table"),
    # It needs no package, and is a product of its own.
    "audit": ("draftproof.harness.audit", "draftproof.reference.audit", "draftproof.report.html.audit"),
}
"""Extras and what belongs to each: nothing else imports it, but a function that was asked for it."""


def imported_by_others(modules: dict[str, ast.Module], known: Collection[str]) -> list[str]:
    """Return the imports of an extra that merely importing another module makes."""
    return [
        f"{module} imports {other}"
        for module, tree in modules.items()
        for node in imports_of(tree, functions=False)
        for other in filter(None, (module_of(name, known) for name in imported_names(node, module)))
        for inside in EXTRAS.values()
        if lies_in(other, inside) and not lies_in(module, inside)
    ]


def test_extras_are_imported_by_whoever_is_asked_for_them_only():
    modules = {module: tree for module, (_, tree) in sources().items()}
    assert imported_by_others(modules, modules) == []
    wrong = ast.parse(
        "from draftproof.harness.cluster.pool import ClusterPool\ndef f():\n    import draftproof.fuzz.releases"
    )
    found = imported_by_others({"draftproof.fuzz.x": wrong}, modules)
    assert found == ["draftproof.fuzz.x imports draftproof.harness.cluster.pool"]


def test_no_modules_import_each_other_in_a_circle():
    """Nor for type checkers alone: a type that contains itself by way of another module is a circle, too."""
    assert cycles(graph(types=True)) == []


def test_imports_for_type_checkers_are_seen():
    tree = ast.parse("import a\nif TYPE_CHECKING:\n    import b\nelse:\n    import c\ndef f():\n    import d\n")
    assert [node.names[0].name for node in imports_of(tree)] == ["a", "d"]
    assert [node.names[0].name for node in imports_of(tree, types=True)] == ["a", "b", "c", "d"]
    assert all(graph()[name] <= others for name, others in graph(types=True).items())
    assert "draftproof.engine.subject" in graph(types=True)["draftproof"] - graph()["draftproof"]


def test_a_circle_would_be_seen():
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}
    assert cycles({name: frozenset(others) for name, others in arrows.items()}) == [["a", "b", "c"]]


def test_the_graph_has_what_functions_import():
    assert "draftproof.properties.lib.durations" in graph()["draftproof.plugin"]
    assert sum(map(len, graph().values())) > 1000
    assert module_of("draftproof.engine.subject.EngineSubject", {"draftproof.engine.subject"}) is not None
    assert module_of("torch.nn", {"draftproof.engine"}) is None


def test_rooms_import_only_what_is_below_them():
    assert wrong_arrows(graph(types=True)) == []
    assert len(UPWARD) <= 2
    assert {room for rooms in FLOORS for room in rooms} == {name.removeprefix("draftproof.") for name in ROOMS}


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("draftproof.kernels.x", "draftproof.properties.lib.errors"),
        ("draftproof.engine.x", "draftproof.reference.run"),
        ("draftproof.properties.x", "draftproof.errors"),
        ("draftproof.harness.x", "draftproof.fuzz.campaign.drive"),
        ("draftproof.harness.x", "draftproof.report.text"),
        ("draftproof.faults.x", "draftproof.fuzz.shrinking"),
        ("draftproof.fuzz.x", "draftproof.report.text"),
        ("draftproof.report.x", "draftproof.cli.app"),
    ],
)
def test_a_wrong_arrow_would_be_seen(module, other):
    assert wrong_arrows({module: frozenset({other})}) == [f"{module} imports {other}"]


def test_files_are_small():
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path, _ in sources().values()
    }
    assert len(lines) > 300
    assert [path for path, count in lines.items() if count > 500] == []
    assert statistics.median(lines.values()) <= 120


def test_no_file_of_tests_is_long():
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert [path.name for path in files if len(path.read_text(encoding="utf-8").splitlines()) > 500] == []


ONE_IN_EACH = {
    "ALGORITHM": "a file of engine/drafts/ has its draft's class under this name",
    "CONTRACTS": "a module of properties/contracts/ has its contracts under this name",
    "FEATURE": "a module of properties/features/ has its row under this name",
}
"""Constants that several modules have in one meaning, by which others find them."""


def homes_of_constants(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Return the modules that define each public constant at their top level."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules.items():
        assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        targets = [each for one in assigned for each in (one.targets if isinstance(one, ast.Assign) else [one.target])]
        names = {name.id for each in targets for name in ast.walk(each) if isinstance(name, ast.Name)}
        for name in sorted(names):
            if name.isupper() and len(name) > 1 and not name.startswith("_"):
                homes[name].append(module)
    return homes


def homes_of_classes(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Return the modules that define each public top-level class."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    return homes


def test_no_two_classes_have_one_name():
    homes = homes_of_classes({module: tree for module, (_, tree) in sources().items()})
    assert len(homes) > 300
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
    assert len(homes_of_classes({"a": ast.parse("class A: ..."), "b": ast.parse("class A: ...")})["A"]) == 2


def test_no_two_constants_have_one_name():
    """A name that only its own module needs begins with an underscore."""
    homes = homes_of_constants({module: tree for module, (_, tree) in sources().items()})
    assert len(homes) > 300
    doubled = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert {name: modules for name, modules in doubled.items() if name not in ONE_IN_EACH} == {}
    assert ONE_IN_EACH.keys() <= doubled.keys()
    made = {"a": ast.parse("OF, N = 1, 2"), "b": ast.parse("OF: int = 1\n_OF = 2"), "c": ast.parse("one = 1")}
    assert homes_of_constants(made) == {"OF": ["a", "b"]}


def test_every_room_is_read():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "draftproof"}
    assert set(ROOMS) == {"draftproof"} | {f"draftproof.{folder}" for folder in folders}


PROPERTIES = (
    ("choose", "lib"),
    ("values",),
    ("formats", "weights"),
    # A feature's row has its facts.
    ("coverage.fact",),
    ("features",),
    ("variants",),
    # A scenario is valid by what its features say of themselves.
    ("validate", "validate_request"),
    ("formats.case",),
    ("evidence",),
    ("diagnosis",),
    ("coverage",),
    ("contracts",),
    ("strategies",),
    ("kernels",),
    ("fit", "select"),
    ("judge", "conformance"),
)
"""The floors of `properties/`, the ground first: each looks at itself and at those before it (CONTRIBUTING.md)."""


def floor(module: str) -> int:
    """Return the floor of a module of `properties`: that with the longest name that fits."""
    fitting = {
        len(name): number for number, names in enumerate(PROPERTIES) for name in names if lies_in(module, (name,))
    }
    return fitting[max(fitting)]


def upward(arrows: dict[str, frozenset[str]]) -> list[str]:
    """Return the imports inside of `properties` that lead to a floor above."""
    room = "draftproof.properties."
    return [
        f"{module} imports {other}"
        for module, others in sorted(arrows.items())
        for other in sorted(others)
        if module.startswith(room) and other.startswith(room)
        if floor(module.removeprefix(room)) < floor(other.removeprefix(room))
    ]


def test_inside_of_properties_nobody_looks_up():
    assert upward(graph()) == []


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("values.scenario", "features"),
        ("values.scenario", "validate"),
        ("values.scenario", "formats.case"),
        ("lib.base", "values.scenario"),
        ("features.trees", "validate"),
        ("features.trees", "evidence.plans"),
        ("features.trees", "coverage.facts"),
        ("evidence.plans", "coverage.counts"),
        ("contracts.trees", "judge"),
        ("coverage.counts", "contracts.base"),
    ],
)
def test_a_look_up_would_be_seen(module, other):
    names = [f"draftproof.properties.{name}" for name in (module, other)]
    assert upward({names[0]: frozenset(names[1:])}) == [f"{names[0]} imports {names[1]}"]


def test_every_floor_is_there_and_nothing_else():
    names = {module.removeprefix("draftproof.properties.") for module in graph()} - {"draftproof.properties"}
    inside = {name for name in names if not name.startswith("draftproof")}
    assert {floor(name) for name in inside} == set(range(len(PROPERTIES)))
