"""Stand-ins for packages that are not installed, and for what they define."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

USED: set[str] = set()
"""Names of stubs that were called or asked for a value: later results may depend on what is missing."""


class StubBase:
    """In place of a stub among the bases of a class."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Take whatever the missing base takes."""


class Stub:
    """Stands for anything that a missing package defines.

    It can be called, subclassed, subscripted, entered, and used as a decorator, which changes nothing; it is false, and
    nothing is an instance of it. Any attribute of it is a stub.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<stub {self._name}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Stub(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        USED.add(self._name)
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Stub):
            return args[0]
        return Stub(f"{self._name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return () if any(isinstance(base, type) for base in bases) else (StubBase,)

    def __bool__(self) -> bool:
        USED.add(self._name)
        return False

    def __len__(self) -> int:
        USED.add(self._name)
        return 0

    def __iter__(self) -> Iterator[Any]:
        USED.add(self._name)
        return iter(())

    def __contains__(self, item: object) -> bool:
        USED.add(self._name)
        return False

    def __getitem__(self, key: object) -> Any:
        USED.add(self._name)
        return Stub(f"{self._name}[]")

    def __enter__(self) -> Any:
        USED.add(self._name)
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __or__(self, other: object) -> Any:
        return self

    __ror__ = __or__

    def __lt__(self, other: object) -> bool:
        USED.add(self._name)
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        return False


class StubModule(ModuleType):
    """A missing module, and at the same time a package of missing modules."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = "0"

    def __getattr__(self, name: str) -> Any:
        return stub_of(self.__name__, name)


def meant(value: object) -> str:
    """Return the name of what a stub stands for; "" of anything else."""
    if isinstance(value, Stub):
        return value._name
    return value.__name__ if isinstance(value, StubModule) else ""


def stub_of(module: str, name: str) -> Stub:
    """Return a stub for a name of a module. Raises AttributeError for names that Python looks up by itself."""
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return Stub(f"{module}.{name}")
