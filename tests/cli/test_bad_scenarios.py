"""Scenario files with a value that no engine could run: exit code 2, and a sentence with field, value and limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.app import run
from draftproof.properties.formats.case import encode
from tests.named import named

Field = tuple[str | int, ...]
_REQUEST: Field = ("requests", 0)
_SAMPLING: Field = (*_REQUEST, "sampling")
_PENALTIES: Field = (*_REQUEST, "penalties")
_GRAMMAR: Field = (*_REQUEST, "grammar")


@pytest.fixture(scope="module")
def scenarios() -> dict[Field, Any]:
    """A scenario that has a value at each of these places."""
    names = {_SAMPLING: "sampled_eagle", _PENALTIES: "penalized", _GRAMMAR: "grammar", ("tree",): "tree_eagle"}
    return {field: json.loads(encode(named(name))) for field, name in names.items()}


def at(made: Any, field: Field) -> Any:
    for name in field:
        made = made[name] if not isinstance(made, dict) or name in made else None
    return made


@pytest.mark.parametrize(
    ("of", "name", "value", "said"),
    [
        (_SAMPLING, "temperature", -1.0, "requests[0].sampling.temperature -1.0: expected `float` > 0.0"),
        (_SAMPLING, "temperature", float("nan"), "requests[0].sampling.temperature nan: expected `float` > 0.0"),
        (_SAMPLING, "top_p", 0.0, "requests[0].sampling.top_p 0.0: expected `float` > 0.0"),
        (_SAMPLING, "top_p", 1.5, "requests[0].sampling.top_p 1.5: expected `float` <= 1.0"),
        (_SAMPLING, "top_k", 0, "requests[0].sampling.top_k 0: expected `int` >= 1"),
        (_SAMPLING, "min_p", 2.0, "requests[0].sampling.min_p 2.0: expected `float` <= 1.0"),
        (("tree",), "nodes", 1, "tree.nodes 1: expected from steps = "),
        (("tree",), "topk", 9, "tree.topk 9: expected `int` <= 8"),
        (_PENALTIES, "repetition", 0.0, "requests[0].penalties.repetition 0.0: expected `float` > 0.0"),
        (_PENALTIES, "repetition", float("nan"), "requests[0].penalties.repetition nan: expected `float` > 0.0"),
        (_PENALTIES, "presence", 10**9, "requests[0].penalties.presence 1000000000: expected `int` <= "),
        (_GRAMMAR, "pattern", "d+", "requests[0].grammar.pattern 'd+': expected a pattern with a word"),
        (_GRAMMAR, "pattern", "(ab", "requests[0].grammar.pattern '(ab': expected ) at place 3"),
        (_REQUEST, "stops", [], "requests[0].stops []: expected the end token "),
    ],
)
def test_a_value_out_of_range_is_named(
    scenarios: dict[Field, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    of: Field,
    name: str,
    value: object,
    said: str,
) -> None:
    made = json.loads(json.dumps(scenarios[_GRAMMAR if of == _REQUEST else of]))
    at(made, of)[name] = value
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    assert run(["replay", str(path)]) == 2
    assert f"scenario.json: invalid {said}" in capsys.readouterr().err


def test_a_cache_that_is_not_defined_is_named(
    scenarios: dict[Field, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, said = json.loads(json.dumps(scenarios["tree",])), "schedule.prefix_cache 'yes': expected `bool`"
    made["schedule"]["prefix_cache"] = "yes"
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    assert run(["replay", str(path)]) == 2
    assert f"scenario.json: invalid {said}" in capsys.readouterr().err
