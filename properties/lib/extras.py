"""Extras: what of Draftproof needs packages that a plain installation lacks (pyproject.toml)."""

from __future__ import annotations

from importlib.util import find_spec

from draftproof.properties.lib.errors import DraftproofError

NEEDED = {"cluster": "ray", "releases": "packaging"}
"""The module that tells whether an extra is installed."""
_PACKAGES = {"cluster": "'ray[client]'", "releases": "packaging"}
"""What pip installs for it: not the extra itself, since whoever has our name on an index is not us."""


class MissingExtraError(DraftproofError):
    """An extra is not installed; the message says how to install it."""


def is_installed(extra: str) -> bool:
    """Return whether what an extra needs is here."""
    return find_spec(NEEDED[extra]) is not None


def lacking(extra: str) -> str:
    """Return what is expected where an extra is not installed."""
    return f"expected {NEEDED[extra]} to be installed, as by pip install {_PACKAGES[extra]}"


def require_extra(extra: str, asked: str) -> None:
    """Raise MissingExtraError for what is asked for, unless its extra is installed."""
    if not is_installed(extra):
        raise MissingExtraError(f"invalid {asked}: {lacking(extra)}")
