"""Values of a scenario's fields that cannot be: each is named, where it is read, with what was expected."""

import re

import msgspec
import pytest

from draftproof.properties.values.scenario import Scenario
from tests.named import named

GRAMMARS = [({"pattern": ""}, "length >= 1"), ({"pattern": "a" * 65}, "length <= 64"), ({"pattern": 3}, "str")]
PENALTIES = {
    "repetition": [(0.0, "> 0"), (-1.0, "> 0"), (17.0, "<= 16"), ("much", "float")],
    "frequency": [((1 << 24) + 1, "<= 16777216"), (-(1 << 24) - 1, ">= -16777216"), (0.5, "int")],
    "presence": [(1 << 30, "<= 16777216"), (None, "int")],
    "bias": [
        ([{"token": -1, "amount": 1}], ">= 0"),
        ([{"token": 1, "amount": 1 << 25}], "<= 16777216"),
        ([{"token": 1}], "missing required field `amount`"),
    ],
    "penalty": [(1, "unknown field `penalty`")],
}
SAMPLING = {
    "temperature": [(0.0, "> 0"), (-1.0, "> 0"), (65.0, "<= 64"), ("warm", "float")],
    "top_k": [(0, ">= 1")],
    "top_p": [(0.0, "> 0"), (1.5, "<= 1")],
    "min_p": [(-0.5, ">= 0"), (2.0, "<= 1")],
    "seed": [(-1, ">= 0")],
    "seeds": [(1, "unknown field `seeds`")],
}
OF_REQUESTS: list[tuple[str, object, str]] = [
    ("abort_at", -1, "`int` >= 0"),
    ("ignore_eos", 1, "`bool`, got `int`"),
    ("min_tokens", -1, "`int` >= 0"),
    ("stop_sequences", [[]], "length >= 1"),
    ("stop_sequences_at", [{"first": 0, "last": -1}], "`int` >= 0"),
    ("stop_sequences_at", [{"last": 1}], "missing required field `first`"),
    *(("logprobs", value, said) for value, said in ((-1, ">= 0"), (21, "<= 20"), (0.5, "int"), ("all", "int"))),
    ("grammar", {}, "missing required field `pattern`"),
    ("grammar", {"pattern": "a", "regex": "a"}, "unknown field `regex`"),
    *(("grammar", value, said) for value, said in GRAMMARS),
    *(("penalties", {field: value}, said) for field, cases in PENALTIES.items() for value, said in cases),
    *(("sampling", {field: value}, said) for field, cases in SAMPLING.items() for value, said in cases),
]
"""A field of a request, a value of it, and what is said."""


@pytest.mark.parametrize(("field", "value", "said"), OF_REQUESTS)
def test_a_value_that_is_not_allowed_is_named(field: str, value: object, said: str) -> None:
    raw = msgspec.to_builtins(named("every_choice"))
    raw["requests"][0][field] = value
    with pytest.raises(msgspec.ValidationError, match=rf"{re.escape(said)}.* - at `\$\.requests\[0\]\.{field}"):
        msgspec.convert(raw, Scenario)


def test_fewer_tokens_a_step_than_none_are_refused() -> None:
    raw = msgspec.to_builtins(named("every_choice"))
    raw["schedule"]["token_budget"] = -1
    with pytest.raises(msgspec.ValidationError, match=r"`int` >= 0 - at `\$\.schedule\.token_budget`"):
        msgspec.convert(raw, Scenario)
