"""The JSON forms: reading with errors that name the field, the value and what is expected."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import msgspec.inspect

from draftproof.properties.lib.base import Value, explain
from draftproof.properties.lib.errors import require_input
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.names import did_you_mean
from draftproof.properties.validate import validate
from draftproof.properties.values.located import located
from draftproof.properties.values.scenario import SCENARIO_VERSION, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice

T = TypeVar("T", bound=Value)


class Case(Value, frozen=True, kw_only=True):
    """A case file: a scenario, the reference's script of it, where it came from, and the subject that failed.

    A case that was written by hand has no script; the reference makes one when the case runs.
    """

    scenario: Scenario
    script: Script | None = None
    origin: str = ""
    subject: SubjectChoice = BUILT_IN_SUBJECT
    version: int = SCENARIO_VERSION


def encode(value: Value) -> str:
    """Return indented JSON with fields in declaration order; the same value always gives the same text."""
    return json.dumps(msgspec.to_builtins(value), indent=1)


def case_text(case: Case) -> str:
    """Return what a case file holds; it names checkpoints by their absolute paths, wherever it is read."""
    return encode(msgspec.structs.replace(case, scenario=located(case.scenario))) + "\n"


def decode(text: str | bytes, kind: type[T], *, name: str = "input") -> T:
    """Read a value. Raises InvalidScenarioError naming the field, its value and what is expected."""
    raw = _parsed(text, kind, name)
    if not isinstance(raw, dict):
        raise InvalidScenarioError(f"{name}: expected a JSON object, {_noun(kind)}, got {type(raw).__name__}")
    of_scenario = raw.get("scenario") if "scenario" in kind.__struct_fields__ else None
    for at, one in (("version", raw), ("scenario.version", of_scenario)):
        if (
            isinstance(one, dict)
            and "version" in kind.__struct_fields__
            and one.get("version", SCENARIO_VERSION) != SCENARIO_VERSION
        ):
            problem = f"{name}: invalid {at} {one['version']!r}: expected {SCENARIO_VERSION}"
            raise InvalidScenarioError(f"{problem}; other versions cannot be read, so make the case again")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise InvalidScenarioError(f"{name}: {_problem(str(error), raw, kind)}") from None
    except UnicodeEncodeError as error:
        raise InvalidScenarioError(f"{name}: invalid {error.object!a}: expected characters of Unicode") from None


def _parsed(text: str | bytes, kind: type, name: str) -> Any:
    """Return what JSON text says, each field of an object once. Raises InvalidScenarioError."""
    expected = f"{name}: expected a JSON object, {_noun(kind)}"
    if not text.strip():
        raise InvalidScenarioError(f"{expected}, got an empty file")
    try:
        return json.loads(text, object_pairs_hook=lambda fields: _once(fields, name))
    except UnicodeDecodeError:
        raise InvalidScenarioError(f"{expected}, got bytes that are no text in UTF-8") from None
    except ValueError as error:
        # Beside what is no JSON a number of thousands of digits.
        raise InvalidScenarioError(f"{expected}: {error}") from None
    except RecursionError:
        raise InvalidScenarioError(f"{expected}, got one that is nested too deeply to be read") from None


def _once(fields: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    """Return an object's fields. Raises InvalidScenarioError for one that is there twice."""
    twice = [key for key, often in Counter(key for key, _ in fields).items() if often > 1]
    if twice:
        raise InvalidScenarioError(f"{name}: invalid {twice[0]}, which is there twice: expected each field once")
    return dict(fields)


def _noun(kind: type) -> str:
    """Return what a value is called: observed counts, a case."""
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()
    return words if words.endswith("s") else f"a {words}"


def read_case(path: Path | str) -> tuple[Scenario, Script | None]:
    """Return (scenario, script) of a case file; a bare scenario file has no script.

    Raises InvalidScenarioError naming the file, and InputError for what is no path.
    """
    require_input(isinstance(path, Path | str), "path", path, "that of a case file")
    path = Path(path)
    try:
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidScenarioError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    _require_case(path, text)
    script = None
    if b'"scenario"' in text:
        case = decode(text, Case, name=str(path))
        scenario, script = case.scenario, case.script
    else:
        scenario = decode(text, Scenario, name=str(path))
    try:
        return validate(scenario), script
    except InvalidScenarioError as error:
        raise InvalidScenarioError(f"{path}: {error}") from None


def _require_case(path: Path, text: bytes) -> None:
    """Raise InvalidScenarioError for an object that is no case: the result of a command, which names some, or else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict) and "verdict" in found:
        cases = [
            one["case"] for one in (found, *(found.get("findings") or ())) if isinstance(one, dict) and "case" in one
        ]
        expected = f"one that it names, as {cases[0]}" if cases else "a case file, and it names none"
        raise InvalidScenarioError(f"{path}: this is the report of a command, not a case: expected {expected}")
    if isinstance(found, dict) and found.keys().isdisjoint(("scenario", *Scenario.__struct_fields__)):
        fields = ", ".join(one.name for one in msgspec.structs.fields(Scenario) if one.required)
        raise InvalidScenarioError(
            f"{path}: expected a case, which has scenario, or a scenario, which has {fields}; got an object with"
            f" {', '.join([*found][:9]) or 'no fields'}"
        )


def case_subject(path: Path) -> SubjectChoice:
    """Return the subject of a case file, the built-in engine for a bare scenario. Raises what `read_case` raises."""
    case = _whole_case(path)
    return case.subject if case else BUILT_IN_SUBJECT


def case_fault(path: Path) -> str:
    """Return the id of the fault with which a case was found, as its origin names it; "" if there was none.

    Raises what `read_case` raises.
    """
    case = _whole_case(path)
    named = re.search(r"--fault (\S+?)(?=[,:]?(?:\s|$))", case.origin) if case else None
    return named[1] if named else ""


def _whole_case(path: Path) -> Case | None:
    """Return all that a case file says; None for a bare scenario."""
    read_case(path)
    text = path.read_bytes()
    return decode(text, Case, name=str(path)) if b'"scenario"' in text else None


def _problem(message: str, raw: Any, kind: type) -> str:
    """Return what is wrong by msgspec's message, with the value and the names that it does not list."""
    path, value, expected = explain(message, raw)
    names = _names(msgspec.inspect.type_info(kind), re.findall(r"\w+", path), raw)
    if "missing" in expected:
        return f"invalid {path}, which is missing: expected a value"
    if names and "not supported" in expected:
        near = did_you_mean(path.rpartition(".")[2], names)
        return f"invalid {path} {_shown(value)}, no field: expected one of the fields {', '.join(names)}{near}"
    expected = f"one of {', '.join(names)}" if names else expected
    return f"invalid {path or 'top level'} {_shown(value)}: expected {expected}"


def _shown(value: Any) -> str:
    """Return a value of JSON as a message shows it: what is long is told by its size."""
    if isinstance(value, dict | list):
        kind = "object" if isinstance(value, dict) else "array"
        return f"a JSON {kind}" if value else f"an empty JSON {kind}"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


def _names(info: Any, path: list[str], value: Any) -> list[str]:
    """Walk a type and its value along a path: return names of an enumeration, tags, or fields beside an unknown one."""
    options = [one for one in getattr(info, "types", (info,)) if not isinstance(one, msgspec.inspect.NoneType)]
    if not path:
        return [str(value) for one in options if isinstance(one, msgspec.inspect.LiteralType) for value in one.values]
    name, *rest = path
    if isinstance(value, list):
        return next((_names(one.item_type, rest, value[int(name)]) for one in options if hasattr(one, "item_type")), [])
    structs = [one for one in options if isinstance(one, msgspec.inspect.StructType)]
    if not structs or not isinstance(value, dict):
        return []
    if structs[0].tag_field == name:
        return [str(one.tag) for one in structs]
    tagged = [one for one in structs if not one.tag_field or one.tag == value.get(one.tag_field)]
    fields = {field.encode_name: field.type for one in tagged for field in one.fields}
    return _names(fields[name], rest, value.get(name)) if name in fields else list(fields)
