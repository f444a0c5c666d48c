"""Benchmarks: `bench.py KIND [options]` measures one kind and prints a row as soon as it is measured.

Columns end in their unit (`_ms`, `_us`); `x_of_y` is a ratio. `--json` has all rows, `--history` adds their seconds to
a file for `draftproof lab bench compare`. `--tiny` tries a kind on a CPU, where only ratios mean anything.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from draftproof.properties.formats.measurement import Measurement, append
from draftproof.properties.lib.files import require_writable

Row = dict[str, Any]
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
PACKAGES = ("sglang", "vllm", "fla")
VERSIONS = ("draftproof", "torch", "triton", "numpy")


@dataclass(frozen=True)
class Kind:
    """What is measured: a function of `module`, the columns that tell its rows apart, and the options that it has.

    The function is named as the kind is, and yields rows; its docstring says what they are. `defaults` are those of
    options; `--device` is `cuda` unless one is named there, or `--tiny` is given.
    """

    module: str
    by: tuple[str, ...] = ("batch",)
    options: tuple[str, ...] = ("tiny", "batch", "repeats")
    defaults: dict[str, Any] = field(default_factory=dict)


KINDS = {
    "decode": Kind("decode"),
    "profile": Kind("decode", ("kernel",), ("tiny", "batch")),
    "step": Kind("step", ("draft", "batch")),
    "prefix": Kind("serve", ("prompt",), ("tiny", "tokens", "repeats")),
    "preemption": Kind("serve"),
    "overlap": Kind("overlap"),
    "mixed": Kind("mixed", ("batch", "chunk"), ("tiny", "batch", "tokens", "repeats")),
    "verify": Kind("verify"),
    "extend": Kind("extend", ("draft", "batch", "part")),
    "gdn": Kind("gdn", ("op", "batch", "tokens"), ("tiny", "batch", "tokens", "device")),
    "gdn-packages": Kind(
        "gdn_packages", ("op", "kernel", "batch", "tokens"), ("tiny", "batch", "tokens", "device", "wheel")
    ),
    "linear": Kind("linear", ("tokens", "layer", "cut"), ("tokens",)),
    "scenarios": Kind("scenarios", ("part",), ("scenarios", "device"), {"scenarios": 200, "device": "cpu"}),
    "notice": Kind(
        "notice",
        ("set",),
        ("every", "apart", "scenarios", "repeats", "workers"),
        {"scenarios": 60, "repeats": 3, "device": "cpu"},
    ),
    "campaign": Kind(
        "campaign",
        ("what",),
        ("scenarios", "templates", "fail-every", "findings", "blocks", "workers", "run"),
        {"scenarios": 100_000, "workers": 8, "device": "cpu"},
    ),
    "cluster": Kind(
        "cluster",
        ("pair",),
        ("cluster", "scenarios", "workers", "repeats"),
        {"scenarios": 100, "repeats": 9, "device": "cpu"},
    ),
}


def at_least(least: int) -> Callable[[str], int]:
    """Return what reads a number of an option."""

    def number(text: str) -> int:
        if not text.lstrip("-").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"invalid {text!r}: expected a whole number of at least {least}")
        return int(text)

    return number


def writable(text: str) -> Path:
    """Return the path of a file that can be written: before anything is measured, and not after."""
    try:
        if Path(text).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        require_writable(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"invalid {text!r}: it cannot be written: {error.strerror}") from None
    return Path(text)


def wheel(text: str) -> Path:
    """Return the path of a wheel of a package that is measured."""
    path = Path(text)
    if path.suffix != ".whl" or not path.name.startswith(PACKAGES) or not path.is_file():
        raise argparse.ArgumentTypeError(f"invalid {text!r}: expected a file *.whl of {', '.join(PACKAGES)}")
    return path


OPTIONS: dict[str, dict[str, Any]] = {
    "tiny": {"action": "store_true", "help": "tiny sizes, to try it out on a CPU"},
    "device": {"choices": ("cuda", "cpu"), "help": "where it runs"},
    "batch": {"type": at_least(1), "action": "append", "help": "batch size, may be given several times"},
    "tokens": {"type": at_least(1), "action": "append", "help": "tokens of a row, may be given several times"},
    "repeats": {"type": at_least(1), "help": "runs that a median is over"},
    "wheel": {"type": wheel, "action": "append", "help": "a package's wheel, may be given several times"},
    "scenarios": {"type": at_least(1), "help": "how many"},
    "workers": {"type": at_least(1), "default": 2, "help": "how many"},
    "every": {"type": at_least(1), "default": 20, "help": "one of so many known bugs"},
    "apart": {"type": Path, "action": "append", "help": "a folder of other bugs, may be given several times"},
    "cluster": {"required": True, "help": "address of a Ray cluster on this machine"},
    "templates": {"type": at_least(1), "default": 24, "help": "scenarios that are really run"},
    "fail-every": {"type": at_least(1), "default": 50, "help": "one of so many scenarios fails"},
    "findings": {"type": at_least(0), "default": 60, "help": "identities of what fails"},
    "blocks": {"type": at_least(1), "default": 10, "help": "blocks for each that is planned"},
    "run": {"type": Path, "help": "keep the campaign in this directory"},
    "seed": {"type": at_least(0), "default": 1, "help": "seed of everything random"},
    "json": {"type": writable, "help": "write everything measured to this file"},
    "history": {"type": writable, "help": "add the seconds measured to this file, for draftproof lab bench compare"},
    "label": {"help": "what that file calls this run (default: the commit)"},
}
OF_ALL = ("seed", "json", "history", "label")


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of a kind; end with 2 where it needs a device that is not here, or would take hours."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    of = {}
    for name, kind in KINDS.items():
        of[name] = kinds.add_parser(name)
        for option in (*kind.options, *OF_ALL):
            of[name].add_argument(f"--{option}", **OPTIONS[option])
        of[name].set_defaults(**kind.defaults)
    given = parser.parse_args(arguments)
    own, options = of[given.kind], KINDS[given.kind].options
    is_small = vars(given).get("tiny", "device" in KINDS[given.kind].defaults)
    given.device = vars(given).get("device") or ("cpu" if is_small else "cuda")
    if given.device == "cuda" and not torch.cuda.is_available():
        ways = {"tiny": ", or --tiny, which runs on a CPU", "scenarios": ", or --device cpu"}
        own.error(f"torch sees no CUDA device here: expected one{''.join(ways.get(one, '') for one in options)}")
    if given.device == "cpu" and not is_small:
        own.error("invalid --device cpu without --tiny: expected both, as sizes of a GPU take hours on a CPU")
    return given


def main() -> None:
    """Measure, print rows, write what the options say."""
    given = parsed()
    kind = KINDS[given.kind]
    measure = getattr(importlib.import_module(kind.module), given.kind.replace("-", "_"))
    device = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    rows: list[Row] = []
    result = {"kind": given.kind, "device": device, "torch": torch.__version__, "options": chosen(given), "rows": rows}
    print(f"{given.kind}, {device}: {measure.__doc__.splitlines()[0]}")
    # A subject says itself what its mode is.
    with torch.inference_mode("device" not in kind.defaults):
        for row in measure(given):
            # At once: whoever stops this early keeps what is measured.
            show(row, rows[-1] if rows else {})
            rows.append(row)
            if given.json:
                given.json.parent.mkdir(parents=True, exist_ok=True)
                given.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if given.history:
        append(given.history, measurement(given, device, dict(seconds(rows, kind.by))))


def show(row: Row, before: Row) -> None:
    """Print a row, and its columns where they are others than those before."""
    widths = {name: 32 if isinstance(value, str) else max(9, len(name)) for name, value in row.items()}
    if row.keys() != before.keys():
        print("\n" + "  ".join(name.replace("_", " ").ljust(widths[name]) for name in row))
    print("  ".join(_cell(value).ljust(widths[name]) for name, value in row.items()).rstrip(), flush=True)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds(rows: list[Row], by: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Yield the seconds of every column with a unit, named by the columns that tell rows apart."""
    for row in rows:
        where = ", ".join(f"{name} {row[name]}" for name in by)
        for column, value in row.items():
            name, _, unit = column.rpartition("_")
            if unit in UNITS:
                yield f"{name}, {where}", UNITS[unit] * value


def chosen(given: argparse.Namespace) -> list[str]:
    """Return the options that say what is measured."""
    left = ("kind", "json", "history", "label", "device")
    return [f"{name} {value}" for name, value in sorted(vars(given).items()) if name not in left and value]


def measurement(given: argparse.Namespace, device: str, taken: dict[str, float]) -> Measurement:
    """Return a line of a history file."""
    return Measurement(
        benchmark=given.kind,
        label=given.label or commit(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device,
        machine=f"{platform.node()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        versions={"python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
        options=tuple(chosen(given)),
        seconds=taken,
    )


def commit() -> str:
    """Return the commit of this checkout, "+" after it if anything is changed; without git our own version."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty=+"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or f"draftproof {version('draftproof')}"


def version(name: str) -> str:
    """Return the version of a package, "none" where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    main()
