"""Stand-ins for packages that an engine imports and never calls: their attributes are classes that cannot be made.

Copied beside unpacked releases, where nothing of Draftproof is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Collection, Sequence
from typing import Any


class _Named(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent


class Absent(metaclass=_Named):
    """Something of a package that was left out."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise RuntimeError("a package that was left out of the pack is called: expected that nothing here needs it")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every submodule of a package but those in `missing`, whose importers know what to do then."""

    def __init__(self, package: str, missing: Collection[str]) -> None:
        self._package, self._missing = package, missing

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{self._package}.") or fullname in self._missing:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stand_in(package: str, missing: Collection[str] = ()) -> None:
    """Make the package that calls this, and its submodules, a stand-in."""
    sys.modules[package].__class__ = _Module
    sys.meta_path.insert(0, _Finder(package, missing))
