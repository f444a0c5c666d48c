"""Where the tokens of a request are, by three numbers each (S-MROPE)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from draftproof.properties.values.scenario import Image, Request


class RopePlaces(NamedTuple):
    """The images of a prompt of `length` tokens: all that positions follow from."""

    length: int = 0
    images: tuple[Image, ...] = ()

    def rows(self, first: int, count: int) -> np.ndarray:
        """Positions [T, 3] of tokens `first`, `first` + 1, .. of the text."""
        return np.array([self.of(index) for index in range(first, first + count)], np.uint64).reshape(count, 3)

    def of(self, index: int) -> tuple[int, int, int]:
        """Return the three positions of one token: an image takes fewer positions than tokens from those behind it."""
        saved = 0
        for image in self.images:
            inside = index - image.start
            if inside < 0:
                break
            if inside < image.frames * image.height * image.width:
                base = image.start - saved
                frame, rest = inside // (image.height * image.width), inside % (image.height * image.width)
                return base + frame, base + rest // image.width, base + rest % image.width
            saved += image.frames * image.height * image.width - max(image.frames, image.height, image.width)
        return index - saved, index - saved, index - saved


def places_of(request: Request) -> RopePlaces:
    """Return the RoPE positions of a request; without images they are the positions of a text."""
    return RopePlaces(len(request.prompt), request.images) if request.images else RopePlaces()
