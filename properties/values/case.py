"""The JSON forms: reading with errors that name the field, the value and what is allowed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import msgspec.inspect

from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import VERSION, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.validate import InvalidScenarioError, validate

T = TypeVar("T", bound=Value)


class Case(Value, frozen=True, kw_only=True):
    """A case file: a scenario, the script that the reference made of it, and where it came from."""

    scenario: Scenario
    script: Script
    origin: str = ""
    version: int = VERSION


def encode(value: Value) -> str:
    """Return indented JSON with fields in declaration order; the same value always gives the same text."""
    return json.dumps(msgspec.to_builtins(value), indent=1)


def decode(text: str | bytes, kind: type[T], *, name: str = "input") -> T:
    """Read a value. Raises InvalidScenarioError naming the field, its value and what is allowed."""
    try:
        raw = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidScenarioError(f"{name}: broken JSON: {error}") from None
    if not isinstance(raw, dict):
        raise InvalidScenarioError(f"{name}: expected a JSON object, got {type(raw).__name__}")
    if "version" in kind.__struct_fields__ and raw.get("version", VERSION) != VERSION:
        problem = f"{name}: invalid version {raw['version']!r}: expected {VERSION}"
        raise InvalidScenarioError(f"{problem}; other versions cannot be read, so make the case again")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise InvalidScenarioError(f"{name}: {_explain(str(error), raw, kind)}") from None


def read_case(path: Path) -> tuple[Scenario, Script | None]:
    """Return (scenario, script) of a case file; a bare scenario file has no script.

    Raises InvalidScenarioError naming the file.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    if b'"scenario"' in text:
        case = decode(text, Case, name=str(path))
        return _valid(case.scenario, path), case.script
    return _valid(decode(text, Scenario, name=str(path)), path), None


def _valid(scenario: Scenario, path: Path) -> Scenario:
    try:
        return validate(scenario)
    except InvalidScenarioError as error:
        raise InvalidScenarioError(f"{path}: {error}") from None


def _explain(message: str, raw: Any, kind: type) -> str:
    """Add the value to a message of msgspec, which says what is allowed and where."""
    match = re.search(r" - at `\$(?P<path>[^`]*)`$", message)
    path = match["path"] if match else ""
    allowed = message[: match.start()] if match else message
    value = _lookup(raw, path)
    shown = json.dumps(value) if not isinstance(value, dict | list) else f"a JSON {_JSON[type(value)]}"
    return f"{path.lstrip('.') or 'the top level'} is {shown}: {allowed}{_allowed(kind, path, allowed, value)}"


_JSON = {dict: "object", list: "array"}


def _allowed(kind: type, path: str, message: str, value: Any) -> str:
    """Return the names that msgspec does not list: of an enumeration, of tags, of the fields that a value may have."""
    if "missing" in message:
        return ""
    names = _names(msgspec.inspect.type_info(kind), re.findall(r"\.(\w+)|\[(?:\d+|\.\.\.)\]", path), value)
    return f", allowed: {', '.join(names)}" if names else ""


def _names(info: Any, fields: list[str], value: Any) -> list[str]:
    """Walk a type along a path; an element of an array has the empty name."""
    options = [one for one in getattr(info, "types", (info,)) if not isinstance(one, msgspec.inspect.NoneType)]
    structs = [one for one in options if isinstance(one, msgspec.inspect.StructType)]
    if fields and not fields[0]:
        return next((_names(one.item_type, fields[1:], value) for one in options if hasattr(one, "item_type")), [])
    if structs and structs[0].tag_field and fields == [structs[0].tag_field]:
        return [str(one.tag) for one in structs]
    if fields:
        inside = [field.type for one in structs for field in one.fields if field.name == fields[0]]
        return next((found for one in inside if (found := _names(one, fields[1:], value))), [])
    if isinstance(value, dict):
        tagged = [one for one in structs if not one.tag_field or one.tag == value.get(one.tag_field)]
        return list(dict.fromkeys(field.encode_name for one in tagged for field in one.fields))
    return [str(value) for one in options if isinstance(one, msgspec.inspect.LiteralType) for value in one.values]


def _lookup(raw: Any, path: str) -> Any:
    for field, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        try:
            raw = raw[field] if field else raw[int(index)]
        except (KeyError, IndexError, TypeError):
            return None
    return raw
