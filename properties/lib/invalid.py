"""What is raised for a scenario that cannot be run."""

from __future__ import annotations

from draftproof.properties.lib.errors import DraftproofError


class InvalidScenarioError(DraftproofError, ValueError):
    """A scenario that cannot be run; the message names the field, the value and what is expected."""


def require(holds: bool, field: str, value: object, expected: str) -> None:
    """Raise InvalidScenarioError unless something holds of a field."""
    if not holds:
        raise InvalidScenarioError(f"invalid {field} {value}: expected {expected}")
