"""Import the real modules of an unpacked wheel in this process.

What a module of the wheel imports and this machine lacks is a stub, unless it stands in a `try` that goes on without. A
module of the wheel that fails, since an installed package is of another version or a device is missing, keeps what it
had defined before, and stubs for the rest. Both are listed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from draftproof.properties.lib.errors import DraftproofError
from draftproof.subjects.wheels.guards import is_guarded
from draftproof.subjects.wheels.stubs import StubModule, meant, stub_of
from draftproof.subjects.wheels.unpack import WheelError

_BOOTSTRAP = ("importlib._bootstrap", "importlib._bootstrap_external")


class WheelImportError(DraftproofError, ImportError):
    """A module of a wheel that cannot be imported, or only in part; the message says why."""


class WheelModules:
    """The modules of one unpacked wheel; no other of the same package can be imported in this process.

    `missing` has the packages that are stubs, `failed` the modules of the wheel that are there in part, and why.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.packages = frozenset(one.parent.name for one in self.folder.glob("*/__init__.py"))
        if not self.packages:
            raise WheelError(f"invalid wheel {str(folder)!r}: expected a Python package in it")
        for name in self.packages & sys.modules.keys():
            raise WheelError(f"invalid wheel {str(folder)!r}: {name} was imported from elsewhere in this process")
        self.missing: set[str] = set()
        self.failed: dict[str, str] = {}
        self._finders = (_Real(self), _Missing(self))
        sys.meta_path.insert(0, self._finders[0])
        sys.meta_path.append(self._finders[1])

    def close(self) -> None:
        """Take the wheel and the stubs out of this process; what was imported of them lives as long as it is held."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in self._finders]
        for name in list(sys.modules):
            if name.partition(".")[0] in self.packages | self.missing:
                del sys.modules[name]

    def has(self, name: str) -> bool:
        """Return whether the wheel has a module of this name."""
        base = self.folder.joinpath(*name.split("."))
        return base.with_suffix(".py").is_file() or (base / "__init__.py").is_file()

    def module(self, name: str) -> ModuleType:
        """Return a module of the wheel, whole. Raises WheelImportError."""
        if not self.has(name):
            raise WheelImportError(f"{self.folder.name} has no module {name}")
        try:
            module = importlib.import_module(name)
        except Exception as error:
            raise WheelImportError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
        if name in self.failed:
            raise WheelImportError(f"{name} cannot be imported whole: {self.failed[name]}")
        return module

    def find(self, name: str, attribute: str) -> Any:
        """Return what a module of the wheel defines; None if the wheel lacks it. Raises WheelImportError."""
        return getattr(self.module(name), attribute, None) if self.has(name) else None

    def lacks(self, name: str) -> dict[str, str]:
        """Return what a module of the wheel has imported and is a stub, each with the reason why it is not there."""
        stubs = {meant(value) for value in vars(sys.modules[name]).values()} if name in sys.modules else set()
        return {one: self._reason(one) for one in sorted(stubs - {""})}

    def _reason(self, stub: str) -> str:
        for name, why in self.failed.items():
            if f"{stub}.".startswith(f"{name}."):
                return f"{name} failed: {why}"
        return f"{stub.partition('.')[0]} is not installed here"

    def holds(self, file: str) -> bool:
        """Return whether a source file belongs to the wheel."""
        return file.startswith(f"{self.folder}/")


class _Real(MetaPathFinder):
    """Finds the modules of the wheel, before anything else of the same name."""

    def __init__(self, modules: WheelModules) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._modules.packages:
            return None
        spec = PathFinder.find_spec(name, [str(self._modules.folder)] if path is None else list(path), target)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "get_code"):
            spec.loader = _Kept(spec.loader, self._modules)
        return spec


class _Kept(Loader):
    """Runs a module; one that fails unexpectedly keeps what it has."""

    def __init__(self, loader: Any, modules: WheelModules) -> None:
        self._loader, self._modules = loader, modules

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        try:
            self._loader.exec_module(module)
        except Exception as error:
            if any(is_guarded(file, line) for file, line in _importing(self._modules)):
                raise
            name = module.__name__
            self._modules.failed[name] = f"{type(error).__name__}: {error}"
            vars(module).setdefault("__getattr__", lambda wanted: stub_of(name, wanted))


class _Missing(MetaPathFinder, Loader):
    """Finds, after everybody else, what a module of the wheel imports and cannot do without."""

    def __init__(self, modules: WheelModules) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if top in self._modules.packages:
            return None
        if top not in self._modules.missing:
            importing = list(_importing(self._modules))
            if "." in name or not importing or any(is_guarded(file, line) for file, line in importing):
                return None
            self._modules.missing.add(top)
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""


def _importing(modules: WheelModules) -> Iterator[tuple[str, int]]:
    """Yield the places in the wheel that import, innermost first; none if something else imports, or only asks."""
    frame: FrameType | None = sys._getframe(2)
    first = True
    while frame is not None:
        file = frame.f_code.co_filename
        if modules.holds(file):
            first = False
            yield file, frame.f_lineno
        elif first and not _passes_on(frame):
            return
        frame = frame.f_back


def _passes_on(frame: FrameType) -> bool:
    """Return whether a frame belongs to the import machinery of another module; `find_spec` only asks."""
    return frame.f_globals.get("__name__") in (__name__, "importlib", *_BOOTSTRAP)
