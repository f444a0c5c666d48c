"""Prints which arguments of Triton kernels differ between what scenarios of probes have compiled: {kernel: [names]}.

Run as a program, in a process of its own: eager kernels compute, and each call is also launched as Triton's, up to the
key under which it would look for what is compiled. No GPU is needed: the driver is a stand-in that names one.
"""

import importlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hopper import stand_in
from triton.runtime.jit import JITFunction

Arguments = dict[str, str]
"""What is compiled in: of a constant its value, of another argument its type and what is known of its value."""
VARIANTS: dict[str, list[Arguments]] = defaultdict(list)


def only_noted(self: Any, *args: object, grid: object, warmup: bool, **options: object) -> None:
    """Note what this launch would be compiled for."""
    *_, binder = self.device_caches[0]
    _, specialization, _ = binder(*args, debug=False, **options)
    names = [parameter.name for parameter in self.params]
    VARIANTS[self.fn.__name__].append(dict(zip(names, map(str, specialization), strict=True)))


def launched_too(library: Any, name: str, kernel: Any, key: str = "", **more: Any) -> None:
    """Register a kernel of the CPU that launches Triton's behind it."""
    if library.ns == "draftproof" and key == "CPU":
        own = kernel.__self__
        own.host = _both(own.host, own.host.__module__.replace(".eager_", ".triton_"), name)
    IMPL(library, name, kernel, key, **more)


def _both(kernel: Callable[..., None], module: str, name: str) -> Callable[..., None]:
    def both(*args: object) -> None:
        kernel(*args)
        getattr(importlib.import_module(module), name)(*args)

    return both


def main(paths: list[str]) -> None:
    """Run the scenarios of files, and print."""
    # What registers kernels is imported only now that a registration has them launched, too.
    from draftproof.engine.subject import EngineSubject
    from draftproof.properties.formats.case import decode
    from draftproof.properties.values.scenario import Scenario
    from draftproof.reference.solved import solved

    subject = EngineSubject(device="cpu")
    for path in paths:
        scenario = decode(Path(path).read_text(encoding="utf-8"), Scenario, name=path)
        subject.run(scenario, solved(scenario).script)
    print(json.dumps({kernel: _differing(variants) for kernel, variants in VARIANTS.items()}))


def _differing(variants: list[Arguments]) -> list[str]:
    return [name for name in variants[0] if len({variant[name] for variant in variants}) > 1]


if __name__ == "__main__":
    stand_in()
    JITFunction.run = only_noted
    IMPL, torch.library.Library.impl = torch.library.Library.impl, launched_too
    main(sys.argv[1:])
