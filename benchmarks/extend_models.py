"""The models that extends of a draft are timed on, with random weights made on the device.

"glm mtp" and "glm dflash" have a small GLM-4-MoE as their target, "probe mtp" has a probe (docs/semantics/probes.md).
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch
from shapes import Shapes, dflash_config, dflash_shapes, glm_config, glm_shapes, random_tensors, sizes_of

from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.models.base import Target
from draftproof.engine.models.dflash import DFlashModel
from draftproof.engine.models.probe import ProbeParts, ProbeShape, ProbeTarget
from draftproof.engine.models.probe_entries import ProbeChain
from draftproof.engine.models.registry import build_target
from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.formats.checkpoint_config.dflash import DFlashConfig
from draftproof.properties.values.drafts import Mtp
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import draft_weights, target_weights

# Drafts of a round, and layers of every chain.
STEPS = 3
GLM = sizes_of(32000, 2048, 6144, 2, 16, 4, 128, experts=(768, 16, 4))
TINY_GLM = sizes_of(256, 48, 80, 2, 4, 2, 16, experts=(24, 6, 2))
PROBE: dict[str, Any] = {"heads": 8, "kv_heads": 2, "key_dim": 16, "value_dim": 16, "lanes": 64}
TINY_PROBE: dict[str, Any] = {"heads": 4, "kv_heads": 2, "key_dim": 3, "value_dim": 2, "lanes": 6}


@dataclass(frozen=True)
class Setup:
    """What is timed and how often; times are medians over `repeats`. `glm` and `probe` are sizes."""

    glm: dict[str, int]
    probe: dict[str, Any]
    vocab: int
    device: str
    dtype: torch.dtype
    batches: tuple[int, ...]
    prompt: int
    repeats: int
    seed: int


@dataclass(frozen=True)
class Built:
    """A target, its draft, and the dtype of both."""

    target: Target
    draft: DraftModel
    dtype: torch.dtype


def setup(given: Namespace) -> Setup:
    """Return the H200 run, or one that a CPU does in seconds."""
    batches, repeats = tuple(given.batch or ()), given.repeats
    if given.tiny:
        return Setup(TINY_GLM, TINY_PROBE, 64, "cpu", torch.float32, batches or (1, 3), 8, repeats or 3, given.seed)
    return Setup(GLM, PROBE, 4096, "cuda", torch.bfloat16, batches or (1, 8, 32), 128, repeats or 50, given.seed)


def glm_mtp(given: Setup) -> Built:
    """Return a GLM-4-MoE and the chain of all its MTP layers."""
    config, tensors = glm_config(given.glm, STEPS), _random(given, glm_shapes(given.glm, STEPS))
    target = build_target(config, tensors)
    return Built(target, DraftModel("mtp", target.built_in_draft(config, tensors, None, chain=True)), given.dtype)


def glm_dflash(given: Setup) -> Built:
    """Return the same target, and a block draft of two layers."""
    target = build_target(glm_config(given.glm, 0), _random(given, glm_shapes(given.glm, 0)))
    sizes = parse_config(dflash_config(given.glm, STEPS + 1), DFlashConfig)
    draft = DFlashModel(sizes, _random(given, dflash_shapes(given.glm)), target)
    return Built(target, DraftModel("dflash", draft), given.dtype)


def probe_mtp(given: Setup) -> Built:
    """Return a probe target of two layers and a chain of the same sizes."""
    sizes, bits = given.probe, 23
    model = ProbeModel(seed=given.seed, layers=2, vocab=given.vocab, logit_bits=bits, **sizes)
    draft = Mtp(seed=given.seed, layers=STEPS, **sizes)
    shape = ProbeShape(*(sizes[name] for name in ("heads", "kv_heads", "key_dim", "value_dim")))
    weights = _probe_tensors(target_weights(model), given.device)
    target = ProbeTarget(weights, {"num_hidden_layers": 2}, shape, None, bits, model.agreement)
    layers = _probe_tensors(draft_weights(draft, model), given.device)
    parts = ProbeParts(layers, shape, {"num_hidden_layers": 2, "draft": msgspec.structs.asdict(draft)}, bits)
    return Built(target, DraftModel("mtp", ProbeChain(parts)), torch.int64)


MODELS: dict[str, Callable[[Setup], Built]] = {"glm mtp": glm_mtp, "probe mtp": probe_mtp, "glm dflash": glm_dflash}


def _random(given: Setup, shapes: Shapes) -> dict[str, torch.Tensor]:
    return random_tensors(shapes, given.device, given.dtype, given.seed)


def _probe_tensors(weights: dict[str, np.ndarray], device: str) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array.view("int64").copy()).to(device) for name, array in weights.items()}
