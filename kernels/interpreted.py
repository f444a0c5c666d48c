"""Triton's interpreter, where NumPy has moved on.

A loop over a tensor of one element takes its number. Triton 3.6 asks NumPy for it by `int(array)` of an array that has
a dimension, which NumPy refuses since 2.4; newer releases of Triton ask for the array without its dimensions.
"""

from functools import cache
from typing import Any


@cache
def mend_numbers() -> None:
    """Let every tensor of one element have a number in kernels that are interpreted in this process."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    interpreter._patch_lang_tensor = patched
