"""The kernels of unpacked releases, or of what is installed, in this process."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from draftproof.harness.bound_kernels import kernel_of
from draftproof.harness.interpreter import mend
from draftproof.properties.formats.kernel_binding import KernelBinding
from draftproof.properties.formats.kernel_fault import KernelFault
from draftproof.properties.lib.errors import DraftproofError
from draftproof.subjects.kernels.packages import KERNEL_PACKAGES
from draftproof.subjects.wheels.change import changed
from draftproof.subjects.wheels.modules import WheelImportError, WheelModules


class AbsentError(DraftproofError):
    """A release does not have the kernel of a binding."""


class ReleasedKernels:
    """Imports kernels; a process has room for one release of a package."""

    def __init__(self) -> None:
        mend()
        self._wheels: dict[str, WheelModules] = {}

    def kernel(self, binding: KernelBinding, wheel: str, fault: KernelFault | None = None) -> Any:
        """Return a binding's kernel, with a fault put into it if there is one.

        Raises AbsentError, WheelImportError, BindingError and ChangeError.
        """
        if not binding.modules:
            return None
        module = self._released(binding, wheel) if wheel else _installed(binding)
        if fault is not None:
            module = changed(module, fault.function or binding.kernel, fault.old, fault.new)
        return kernel_of(binding, module)

    def lacks(self, kernel: Any, wheel: str) -> dict[str, str]:
        """Return what the module of a kernel of a wheel has a stub for, and why it is not there."""
        module = getattr(kernel, "__module__", "")
        return self._wheels[wheel].lacks(module) if wheel in self._wheels and module else {}

    def _released(self, binding: KernelBinding, folder: str) -> ModuleType:
        if folder not in self._wheels:
            self._wheels[folder] = WheelModules(Path(folder))
            for package in KERNEL_PACKAGES:
                package.prepare(Path(folder))
        wheel = self._wheels[folder]
        last: Exception = AbsentError(f"no module {' or '.join(binding.modules)} in this release")
        for name in binding.modules:
            if not wheel.has(name):
                continue
            try:
                module = wheel.module(name)
            except WheelImportError as error:
                last = error
                continue
            kernel = getattr(module, binding.kernel, None)
            lacking = [one for one in binding.parameters if kernel and one not in inspect.signature(kernel).parameters]
            if kernel is not None and not lacking:
                return module
            without = f" with the parameter {lacking[0]}" if lacking else ""
            last = AbsentError(f"{name} of this release has no {binding.kernel}{without}")
        raise last


def _installed(binding: KernelBinding) -> ModuleType:
    """Return the first of a binding's modules that can be imported. Raises WheelImportError, of the last of them."""
    last = ""
    for name in binding.modules:
        try:
            return importlib.import_module(name)
        except Exception as error:
            sys.modules.pop(name, None)
            last = f"{name} cannot be imported: {type(error).__name__}: {error}"
    raise WheelImportError(last)
