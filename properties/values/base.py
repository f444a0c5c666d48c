"""The base of every value that travels between stages."""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A frozen value with one JSON form; unknown fields are errors, never ignored."""
