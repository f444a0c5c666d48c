"""Generic mutations: cosmic-ray's operators that fit numeric code, and three of our own on top of its API."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import parso.python.tree as tree
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator


def _replaced(kind: str, pairs: str) -> tuple[str, ...]:
    return tuple(f"Replace{kind}Operator_{pair}" for pair in pairs.split())


_LOGIC = "ReplaceAndWithOr ReplaceOrWithAnd ReplaceTrueWithFalse ReplaceFalseWithTrue AddNot"
_BINARY = "Add_Sub Sub_Add Mul_Add FloorDiv_Mod Mod_FloorDiv BitAnd_BitOr BitOr_BitAnd"
_CORE: dict[str, tuple[str, ...]] = {
    "boundary": _replaced("Comparison", "Lt_LtE LtE_Lt Gt_GtE GtE_Gt"),
    "comparison": _replaced("Comparison", "Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is"),
    "off by one": ("NumberReplacer",),
    "arithmetic": (*_replaced("Binary", _BINARY), *_replaced("Unary", "Delete_USub")),
    "logic": (*_LOGIC.split(), *_replaced("Unary", "Delete_Not")),
    "loop": ("ZeroIterationForLoop",),
}


_SYMMETRIC = ("minimum", "maximum", "promote_types")


class SwappedArguments(Operator):
    """Exchange two neighbouring positional arguments of a call in which the order has a meaning."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        for one, other in _pairs(node):
            yield one.start_pos, other.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        one, other = list(_pairs(node))[index]
        children = list(node.children)
        first, second = children.index(one), children.index(other)
        _exchange_prefixes(one, other)
        children[first], children[second] = other, one
        node.children = children
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("f(a, b)", "f(b, a)"), Example("f(a, b, c)", "f(a, c, b)", occurrence=1))


class DroppedStatement(Operator):
    """Leave out a call, an augmented assignment, or an assignment to an attribute or an element."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and _droppable(node.children[0]):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        leaf = node.get_first_leaf()
        node.children = [tree.Keyword("pass", leaf.start_pos, leaf.prefix), *node.children[1:]]
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("f(a)\n", "pass\n"), Example("a.b = c\n", "pass\n"), Example("a += b\n", "pass\n"))


class WrongVariable(Operator):
    """Read another parameter of the same annotation; in kernels, where there is none, of the same prefix."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        for _ in _alike(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return tree.Name(_alike(node)[index], node.start_pos, node.prefix)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        before = "def f(a: int, b: int, c: str):\n    return a\n"
        return (Example(before, before.replace("return a", "return b")),)


def _pairs(node: Any) -> Iterator[tuple[Any, Any]]:
    if node.type != "arglist" or _is_symmetric(node.parent.get_previous_leaf()):
        return
    plain = [child for child in node.children if child.type not in ("argument", "operator")]
    for one, other in itertools.pairwise(plain):
        if one.get_code(include_prefix=False) != other.get_code(include_prefix=False):
            yield one, other


def _is_symmetric(called: Any) -> bool:
    """Return whether a function gives the same for its arguments in any order; methods of these names do not."""
    before = called.get_previous_leaf() if called is not None else None
    is_own = before is None or before.value != "."
    return called is not None and (called.value in _SYMMETRIC or (is_own and called.value in ("min", "max")))


def _exchange_prefixes(one: Any, other: Any) -> None:
    first, second = one.get_first_leaf(), other.get_first_leaf()
    first.prefix, second.prefix = second.prefix, first.prefix


def _droppable(statement: Any) -> bool:
    if statement.type == "atom_expr":
        last = statement.children[-1]
        return last.type == "trailer" and last.children[0].value == "("
    if statement.type != "expr_stmt":
        return False
    target, sign = statement.children[0], statement.children[1]
    augmented = sign.type == "operator" and sign.value != "="
    return augmented or (sign.type == "operator" and target.type in ("atom_expr", "power"))


def _alike(node: Any) -> list[str]:
    """Return the parameters that could be read in place of a name, which must be a parameter, too."""
    if node.type != "name" or node.parent is None or _named(node) or _is_asked_for_device(node):
        return []
    function = node.search_ancestor("funcdef")
    if function is None or node.start_pos < function.children[-1].start_pos:
        return []
    kinds = {one.name.value: _kind(one) for one in function.get_params()}
    kind = kinds.get(node.value)
    others = [name for name, other in kinds.items() if other == kind and name not in (node.value, "self", "cls")]
    return others[:1] if kind and node.value not in ("self", "cls") else []


def _is_asked_for_device(node: Any) -> bool:
    """Return whether only the device of a tensor is read, which is the same for all tensors."""
    return (dot := node.get_next_leaf()) is not None and dot.value == "." and dot.get_next_leaf().value == "device"


def _named(node: Any) -> bool:
    """Whether a name is an attribute, a keyword of a call, or what is assigned to."""
    previous = node.get_previous_leaf()
    keyword = node.parent.type == "argument" and node.parent.children[0] is node
    return keyword or node.is_definition() or (previous is not None and previous.value == ".")


def _kind(parameter: Any) -> str:
    if parameter.annotation is not None and "constexpr" not in parameter.annotation.get_code():
        return parameter.annotation.get_code().strip()
    return parameter.name.value.split("_")[0]


OWN_OPERATORS: dict[str, type[Operator]] = {
    "swapped arguments": SwappedArguments,
    "dropped statement": DroppedStatement,
    "wrong variable": WrongVariable,
}


def operators() -> dict[str, tuple[Operator, ...]]:
    """Kind of mutation -> the operators that make it."""
    core = {kind: tuple(get_operator(f"core/{name}")() for name in names) for kind, names in _CORE.items()}
    return {**core, **{kind: (of_kind(),) for kind, of_kind in OWN_OPERATORS.items()}}
