"""Targets from checkpoints, with drafts from a directory, from a seed, or built into the target's checkpoint.

Target and draft are built from one configuration object, which stays what it was: `Pair.seen` is the evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.models.base import Block, Chain, Head, NgramSettings, Target
from draftproof.engine.models.checkpoint import Tensors, open_tensors
from draftproof.engine.models.config_fields import draft_fields, fingerprint, target_fields
from draftproof.engine.models.dflash import load_dflash
from draftproof.engine.models.eagle3_head import load_eagle3
from draftproof.engine.models.eagle_head import EagleHead, load_head
from draftproof.engine.models.fp8 import keep_in_fp8
from draftproof.engine.models.layers import LayerSizes
from draftproof.engine.models.mtp_chain import FirstLayer
from draftproof.engine.models.registry import build_target, load_target
from draftproof.engine.models.target import CheckpointTarget
from draftproof.engine.subject.pair import Pair
from draftproof.properties.formats.checkpoint_config import parse_config, read_fields
from draftproof.properties.formats.checkpoint_config.base import LINEAR_ATTENTION
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft, Ngram, algorithm
from draftproof.properties.values.fp8 import FP8, check_architecture
from draftproof.properties.values.scenario import Checkpoint
from draftproof.properties.weights.eagle import HeadSizes, random_head

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


@dataclass(frozen=True)
class Source:
    """What a draft is made of: the target's configuration and tensors, the target, what was asked for, and where."""

    config: Any
    tensors: Tensors
    target: CheckpointTarget[Any]
    draft: CheckpointDraft
    device: torch.device


def load(model: Checkpoint, draft: CheckpointDraft | Ngram, device: torch.device) -> Pair:
    """Read the directories. Raises CheckpointError naming what is wrong with them."""
    return build_pair(read_fields(model.path), model, draft, device)


def build_pair(config: Any, model: Checkpoint, draft: CheckpointDraft | Ngram, device: torch.device) -> Pair:
    """Build as `load` does, with a configuration object (a mapping, or with to_dict()) in place of the directory's."""
    tensors = open_tensors(model.path, device, _DTYPES[model.dtype])
    seen = [fingerprint(config)]
    target = build_target(config, tensors)
    if model.kv_cache_dtype == FP8:
        check_architecture("model.kv_cache_dtype", target.config.architecture, model.path)
        keep_in_fp8(target, tensors, _attentions(target))
    seen.append(fingerprint(config))
    if isinstance(draft, Ngram):
        built = DraftModel(algorithm(draft), NgramSettings(draft.max_n, draft.min_n, draft.match))
    else:
        source = Source(config, tensors, target, draft, device)
        built = DraftModel(draft.algorithm, _kept(draft, _BUILD[draft.algorithm](source)))
    seen.append(fingerprint(config))
    return Pair(target, built, config, tuple(seen))


def _kept(draft: CheckpointDraft, made: Any) -> Any:
    """Return a draft's model, which keeps its entries as the draft says, with the scales of its own directory."""
    if draft.kv_cache_dtype != FP8:
        return made
    tensors = open_tensors(draft.path, "cpu", torch.float32) if draft.path else {}
    if isinstance(made, CheckpointTarget):
        check_architecture("draft.kv_cache_dtype", made.config.architecture, draft.path)
        keep_in_fp8(made, tensors, _attentions(made))
    else:
        is_middle = any(name.startswith("midlayer.") for name in tensors)
        keep_in_fp8(made, tensors, ["midlayer.self_attn" if is_middle else "layers.0.self_attn"])
    return made


def _attentions(model: CheckpointTarget[Any]) -> list[str]:
    """Return what the names of the tensors of each attention begin with."""
    return [f"model.layers.{i}.self_attn" for i in range(model.cache_shape.layers)]


def _eagle(source: Source) -> Head:
    target, draft = source.target, source.draft
    if draft.built_in:
        return FirstLayer(_built_in(source, 1))
    sizes = target.eagle_config(parse_config(draft_fields(source.config)))
    if draft.path:
        return load_head(draft.path, target, sizes, source.device, target.hidden_dtype)
    arrays = random_head(_head_sizes(LayerSizes.of(sizes)), draft.seed)
    weights = {name: torch.from_numpy(array).to(source.device, target.hidden_dtype) for name, array in arrays.items()}
    return EagleHead(sizes, weights, target)


def _mtp(source: Source) -> Chain:
    if source.draft.path:
        raise CheckpointError(f"invalid path {source.draft.path!r} of an mtp draft: expected none")
    return _built_in(source, None)


def _dflash(source: Source) -> Block:
    target = source.target
    return load_dflash(_directory(source.draft), target, source.device, target.hidden_dtype)


def _eagle3(source: Source) -> Head:
    target = source.target
    return load_eagle3(_directory(source.draft), target, source.device, target.hidden_dtype)


def _standalone(source: Source) -> Target:
    """Read a language model of its own, of the target's vocabulary and without states."""
    path, target = _directory(source.draft), source.target
    if parse_config(target_fields(read_fields(path))).has_states:
        raise CheckpointError(f"invalid standalone draft {path}: expected no layers of {LINEAR_ATTENTION}")
    draft = load_target(path, source.device, target.hidden_dtype)
    if draft.vocab != target.vocab:
        raise CheckpointError(f"invalid vocab_size {draft.vocab} of the draft: expected {target.vocab}, the target's")
    return draft


_BUILD: dict[str, Callable[[Source], Head | Chain | Block | Target]] = {
    "eagle": _eagle,
    "mtp": _mtp,
    "dflash": _dflash,
    "standalone": _standalone,
    "eagle3": _eagle3,
}


def _built_in(source: Source, count: int | None) -> Chain:
    """Return the first `count` MTP layers of the target's checkpoint, or all. Raises CheckpointError if it has none."""
    return source.target.built_in_draft(source.config, source.tensors, count, chain=source.draft.chain)


def _directory(draft: CheckpointDraft) -> str:
    if not draft.path or draft.built_in:
        given = "built into the target" if draft.built_in else "not given"
        raise CheckpointError(f"invalid path of a {draft.algorithm} draft, {given}: expected a checkpoint directory")
    return draft.path


def _head_sizes(sizes: LayerSizes) -> HeadSizes:
    return HeadSizes(
        hidden=sizes.hidden_size,
        intermediate=sizes.intermediate_size,
        heads=sizes.num_attention_heads,
        kv_heads=sizes.num_key_value_heads,
        head_dim=sizes.head_dim,
        qk_norm=sizes.qk_norm,
    )
