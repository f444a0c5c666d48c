"""Real models of a scenario: a checkpoint directory as the target, and its draft from a directory, from a seed, or
built into the target's checkpoint.

Target and draft are built from one configuration object, which stays what it was: `Pair.seen` is the evidence.
"""

from __future__ import annotations

from typing import Any

import torch

from draftproof.engine.models.base import Head
from draftproof.engine.models.checkpoint import (
    CheckpointError,
    DenseConfig,
    Tensors,
    open_tensors,
    parse_config,
    read_json,
)
from draftproof.engine.models.config_fields import draft_fields, fingerprint, target_fields
from draftproof.engine.models.dense import Dense
from draftproof.engine.models.eagle_head import EagleHead, head_config, load_head
from draftproof.engine.models.hybrid import OTHER_PARTS, Hybrid, build_target
from draftproof.engine.models.hybrid_config import HybridConfig, is_hybrid, parse_hybrid
from draftproof.engine.models.mtp import build_mtp
from draftproof.engine.subject.pair import Pair
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.heads import HeadSizes, random_head
from draftproof.properties.values.scenario import Checkpoint

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def load(model: Checkpoint, head: CheckpointDraft, device: torch.device) -> Pair:
    """Read the directories. Raises CheckpointError naming what is wrong with them."""
    return build_pair(read_json(model.path), model, head, device)


def build_pair(config: Any, model: Checkpoint, head: CheckpointDraft, device: torch.device) -> Pair:
    """As `load`, with a configuration object (a mapping, or with to_dict()) for that of the directory."""
    tensors = open_tensors(model.path, device, DTYPES[model.dtype])
    seen = [fingerprint(config)]
    target = _target(config, tensors)
    seen.append(fingerprint(config))
    draft = _draft(config, tensors, target, head, device)
    seen.append(fingerprint(config))
    return Pair(target, draft, config, tuple(seen))


def _target(config: Any, tensors: Tensors) -> Dense | Hybrid:
    fields = target_fields(config)
    if is_hybrid(fields):
        target: Dense | Hybrid = build_target(config, tensors)
        tensors.refuse_unread(*OTHER_PARTS, *_tied(target))
    else:
        target = Dense(parse_config(fields), tensors)
        tensors.refuse_unread(*_tied(target))
    return target


def _tied(target: Dense | Hybrid) -> tuple[str, ...]:
    """Some writers repeat a tied lm_head."""
    return ("lm_head.weight",) if target.config.tied else ()


def _draft(config: Any, tensors: Tensors, target: Dense | Hybrid, head: CheckpointDraft, device: torch.device) -> Head:
    dtype = target.hidden_dtype
    if head.built_in:
        if not isinstance(target, Hybrid):
            raise CheckpointError("built_in is True; allowed: False, this architecture has no draft of its own")
        return build_mtp(config, tensors, target)
    if head.path:
        return load_head(head.path, target, device, dtype)
    fields = draft_fields(config)
    view: DenseConfig | HybridConfig = parse_hybrid(fields) if is_hybrid(fields) else parse_config(fields)
    sizes = head_config(view)
    arrays = random_head(_sizes(sizes), head.seed)
    weights = {name: torch.from_numpy(array).to(device, dtype) for name, array in arrays.items()}
    return EagleHead(sizes, weights, target)


def _sizes(config: DenseConfig) -> HeadSizes:
    return HeadSizes(config.width, config.intermediate, config.heads, config.kv_heads, config.head_dim, config.qk_norm)
