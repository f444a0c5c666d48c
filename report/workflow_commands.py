"""GitHub's workflow commands: a line on stdout that a runner shows as an annotation."""

from __future__ import annotations

from typing import Literal


def annotation(level: Literal["error", "warning"], title: str, text: str, **where: str | int) -> str:
    """Return the line; `where` are its other properties, as file and line, which stand before the title."""
    told = [f"{name}={_property(str(value))}" for name, value in {**where, "title": title}.items()]
    return f"::{level} {','.join(told)}::{_data(text)}"


def _data(text: str) -> str:
    """Return a message in one line, as GitHub reads it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return a property's value with the separators of properties escaped, too."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
