"""The errors of Draftproof. This module imports nothing, so that every room may raise them."""


class DraftproofError(Exception):
    """Base class of every error that Draftproof raises on purpose; the message says what was expected."""


class ConditionError(DraftproofError):
    """What is wrong lies outside of all code, as a server that stopped; the message says it, a stack adds nothing."""


class InputError(DraftproofError, ValueError):
    """The user's input cannot be used; the message names it and says what was expected."""


def require_input(holds: bool, name: str, value: object, expected: str) -> None:
    """Raise InputError unless something holds of an argument."""
    if not holds:
        raise InputError(f"invalid {name} {value!r}: expected {expected}")


class CheckpointError(DraftproofError, ValueError):
    """A checkpoint cannot be used; the message names the file, field or tensor, its value and what was expected."""
