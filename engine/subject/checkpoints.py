"""Real models of a scenario: a checkpoint directory as the target, and its head from a directory or from a seed."""

from __future__ import annotations

import torch

from draftproof.engine.models.base import Head, Target
from draftproof.engine.models.checkpoint import DenseConfig
from draftproof.engine.models.dense import load_target
from draftproof.engine.models.eagle_head import EagleHead, head_config, load_head
from draftproof.properties.values.heads import HeadSizes, random_head
from draftproof.properties.values.scenario import Checkpoint, CheckpointHead

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def load(model: Checkpoint, head: CheckpointHead, device: torch.device) -> tuple[Target, Head]:
    """Raises CheckpointError naming what is wrong with a directory."""
    dtype = DTYPES[model.dtype]
    target = load_target(model.path, device, dtype)
    if head.path:
        return target, load_head(head.path, target, device, dtype)
    weights = random_head(_sizes(target.config), head.seed)
    tensors = {name: torch.from_numpy(array).to(device, dtype) for name, array in weights.items()}
    return target, EagleHead(head_config(target.config), tensors, target)


def _sizes(config: DenseConfig) -> HeadSizes:
    return HeadSizes(config.width, config.intermediate, config.heads, config.kv_heads, config.head_dim, config.qk_norm)
