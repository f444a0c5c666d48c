"""Heads as SGLang reads them: their architecture says what they are, and the `fc` of EAGLE has a bias."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

_EAGLE = {"eagle": "LlamaForCausalLMEagle", "eagle3": "LlamaForCausalLMEagle3"}


@cache
def published(path: str, algorithm: str) -> str:
    """Return a folder with the head of a folder as SGLang takes it: the same one, or a copy with what it lacks."""
    config: dict[str, Any] = json.loads((Path(path) / "config.json").read_text())
    architecture = _EAGLE.get(algorithm)
    if architecture is None or config["architectures"] == [architecture]:
        return path
    from safetensors.torch import load_file, save_file  # numpy has no bfloat16

    made = Path(tempfile.mkdtemp(prefix="draftproof-head-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    shutil.copytree(path, made, dirs_exist_ok=True)
    (made / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
    weights = load_file(made / "model.safetensors")
    if algorithm == "eagle" and "fc.bias" not in weights:
        # Without one SGLang's own is whatever torch.nn.Linear is made with.
        weights["fc.bias"] = weights["fc.weight"].new_zeros(len(weights["fc.weight"]))
        save_file(weights, made / "model.safetensors")
    return str(made)
