"""Every mutant of the engine and the kernels, and a sample of them that is a function of a seed."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator

from draftproof.faults.mutation.mutant import Mutant, changed, mutable, names_left_out
from draftproof.faults.mutation.operators import operators

_HINTS = ("num_warps", "num_stages", "eviction_policy", "cache_modifier")
_UNSEEN = ("gdc_wait", "gdc_launch_dependents", "debug_barrier", "before_launch")
_REFUSAL = re.compile(r"check|(check|refuse)_\w+")


class _Spot(NamedTuple):
    path: str
    kind: str
    operator: Operator
    occurrence: int
    line: int


def sample(seed: int, count: int, sources: Mapping[str, str] | None = None) -> list[Mutant]:
    """Return `count` mutants, the same number from each kind and folder as far as there are that many.

    A function of the seed and of the sources.
    """
    sources = mutable() if sources is None else sources
    strata: dict[tuple[str, str], list[_Spot]] = {}
    for path in sorted(sources):
        for spot in spots(path, sources[path]):
            strata.setdefault((_folder(path), spot.kind), []).append(spot)
    chooser = random.Random(seed)
    for of_kind in strata.values():
        chooser.shuffle(of_kind)
    found: list[Mutant] = []
    seen: set[tuple[str, str]] = set()
    while len(found) < count and any(strata.values()):
        for name in sorted(strata):
            made = _next(strata[name], sources, seen)
            if made is not None and len(found) < count:
                found.append(made)
    return found


def _next(left: list[_Spot], sources: Mapping[str, str], seen: set[tuple[str, str]]) -> Mutant | None:
    """Return the next mutant of a stratum that is Python and was not made before."""
    while left:
        mutant = make(left.pop(), sources)
        if mutant is not None and (mutant.path, mutant.text) not in seen:
            seen.add((mutant.path, mutant.text))
            return mutant
    return None


def _folder(path: str) -> str:
    """Return what takes turns: the engine proper, its models, eager kernels, Triton kernels."""
    if path.startswith("kernels/triton"):
        return "triton"
    return "models" if path.startswith("engine/models/") else path.split("/")[0]


def spots(path: str, text: str) -> Iterator[_Spot]:
    """Every place where an operator applies, outside of annotations, of what only describes, and what is left out."""
    quiet = _quiet(text, names_left_out(path))
    nodes = list(ast_nodes(parso.parse(text)))
    for kind, of_kind in operators().items():
        for operator in of_kind:
            occurrence = 0
            for node in nodes:
                for start, _ in operator.mutation_positions(node):
                    if not any(first <= start < last for first, last in quiet):
                        yield _Spot(path, kind, operator, occurrence, start[0])
                    occurrence += 1


def make(spot: _Spot, sources: Mapping[str, str]) -> Mutant | None:
    """Return the mutant of a spot; None if it changes nothing or is no Python."""
    text = sources[spot.path]
    mutated = mutate_code(text, spot.operator, spot.occurrence)
    try:
        if mutated is None or ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(text)):
            return None
    except SyntaxError:
        return None
    before, after = changed(text, mutated)
    return Mutant(path=spot.path, kind=spot.kind, line=spot.line, before=before, after=after, text=mutated)


Span = tuple[tuple[int, int], tuple[int, int]]


def _quiet(text: str, left_out: frozenset[str] = frozenset()) -> list[Span]:
    """Return the spans in which a change means nothing to a healthy run on a CPU, as `RULES` lists them.

    Besides them annotations, decorators, blocks that only type checkers read, and what is left out by its name.
    """
    found: list[Span] = []
    for node in ast.walk(ast.parse(text)):
        for part in _parts(node, left_out):
            end = (part.end_lineno or part.lineno, part.end_col_offset or 0)
            found.append(((part.lineno, part.col_offset), end))
    return found


def _parts(node: ast.AST, left_out: frozenset[str]) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in left_out:
        yield node
    elif isinstance(node, ast.FunctionDef):
        yield from node.decorator_list
        if node.returns is not None:
            yield node.returns
    elif isinstance(node, ast.ClassDef):
        yield from (*node.decorator_list, *node.bases)
    elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id in ("TYPE_CHECKING", "PDL"):
        yield node
    elif isinstance(node, ast.keyword) and node.arg in ("strict", *_HINTS):
        yield node.value
    elif isinstance(node, ast.stmt) and (_refuses(node) or _called(node) in _UNSEEN):
        yield node


def _called(node: ast.stmt) -> str:
    """Return the name of what a statement calls and does nothing else, empty for any other."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return ""
    called = node.value.func
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _refuses(node: ast.stmt) -> bool:
    """Return whether a statement does nothing but raise, in some case or in every one, itself or in a `check`."""
    if isinstance(node, ast.If | ast.For):
        return _all_refuse(node.body) and _all_refuse(node.orelse)
    return isinstance(node, ast.Raise) or _REFUSAL.fullmatch(_called(node)) is not None


def _all_refuse(block: list[ast.stmt]) -> bool:
    """Return whether all statements refuse, except those that only word the error at the end."""
    worded = bool(block) and isinstance(block[-1], ast.Raise)
    return all(_refuses(node) or (worded and isinstance(node, ast.Assign)) for node in block)
