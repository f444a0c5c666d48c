"""The JSON forms: reading with errors that name the field, the value and what is allowed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import VERSION, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.validate import InvalidScenario, validate

T = TypeVar("T", bound=Value)


class Case(Value, frozen=True, kw_only=True):
    """A case file: a scenario, the script that the reference made of it, and where it came from."""

    scenario: Scenario
    script: Script
    origin: str = ""
    version: int = VERSION


def encode(value: Value) -> str:
    """Indented JSON with fields in declaration order; the same value always gives the same text."""
    return json.dumps(msgspec.to_builtins(value), indent=1)


def decode(text: str | bytes, kind: type[T], *, name: str = "input") -> T:
    """Read a value. Raises InvalidScenario naming the field, its value and what is allowed."""
    try:
        raw = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidScenario(f"{name}: broken JSON: {error}") from None
    if not isinstance(raw, dict):
        raise InvalidScenario(f"{name}: expected a JSON object, got {type(raw).__name__}")
    if "version" in kind.__struct_fields__ and raw.get("version", VERSION) != VERSION:
        raise InvalidScenario(f"{name}: version is {raw['version']!r}, allowed: {VERSION}")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise InvalidScenario(f"{name}: {_explain(str(error), raw)}") from None


def read_case(path: Path) -> tuple[Scenario, Script | None]:
    """(scenario, script) of a case file; a bare scenario file has no script."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidScenario(f"{path}: cannot be read: {error.strerror}") from None
    if b'"scenario"' in text:
        case = decode(text, Case, name=str(path))
        return validate(case.scenario), case.script
    return validate(decode(text, Scenario, name=str(path))), None


def _explain(message: str, raw: Any) -> str:
    """msgspec says what is allowed and where; the value found there is added."""
    match = re.search(r" - at `\$(?P<path>[^`]*)`$", message)
    path = match["path"] if match else ""
    allowed = message[: match.start()] if match else message
    value = _lookup(raw, path)
    shown = json.dumps(value) if not isinstance(value, dict | list) else f"a JSON {type(value).__name__}"
    return f"{path.lstrip('.') or 'the top level'} is {shown}: {allowed}"


def _lookup(raw: Any, path: str) -> Any:
    for field, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        try:
            raw = raw[field] if field else raw[int(index)]
        except (KeyError, IndexError, TypeError):
            return None
    return raw
