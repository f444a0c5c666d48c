"""Real models of a scenario: a checkpoint directory as the target, and its draft from a directory, from a seed, or
built into the target's checkpoint.

Target and draft are built from one configuration object, which stays what it was: `Pair.seen` is the evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.drafts.ngram import NgramSettings
from draftproof.engine.models.base import Block, Chain, Head, Target
from draftproof.engine.models.chain import FirstLayer, OneLayer, build_chain
from draftproof.engine.models.checkpoint import (
    CheckpointError,
    DenseConfig,
    Tensors,
    open_tensors,
    parse_config,
    read_json,
)
from draftproof.engine.models.config_fields import LINEAR, draft_fields, fingerprint, target_fields
from draftproof.engine.models.dense import Dense
from draftproof.engine.models.dflash import load_dflash
from draftproof.engine.models.eagle_head import EagleHead, head_config, load_head
from draftproof.engine.models.grouped import Grouped, build_grouped, mtp_prefixes
from draftproof.engine.models.grouped_config import GroupedConfig, is_grouped, parse_grouped
from draftproof.engine.models.hybrid import OTHER_PARTS, Hybrid, build_target
from draftproof.engine.models.hybrid_config import HybridConfig, is_hybrid, parse_hybrid
from draftproof.engine.models.mtp import build_mtp
from draftproof.engine.subject.pair import Pair
from draftproof.properties.values.drafts import CheckpointDraft, Ngram, algorithm
from draftproof.properties.values.eagle_weights import HeadSizes, random_head
from draftproof.properties.values.scenario import Checkpoint

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
RealTarget = Dense | Hybrid | Grouped


@dataclass(frozen=True)
class Source:
    """What a draft is made of: the target's configuration and tensors, the target, what was asked for, and where."""

    config: Any
    tensors: Tensors
    target: RealTarget
    draft: CheckpointDraft
    device: torch.device


def load(model: Checkpoint, draft: CheckpointDraft | Ngram, device: torch.device) -> Pair:
    """Read the directories. Raises CheckpointError naming what is wrong with them."""
    return build_pair(read_json(model.path), model, draft, device)


def build_pair(config: Any, model: Checkpoint, draft: CheckpointDraft | Ngram, device: torch.device) -> Pair:
    """As `load`, with a configuration object (a mapping, or with to_dict()) for that of the directory."""
    tensors = open_tensors(model.path, device, DTYPES[model.dtype])
    seen = [fingerprint(config)]
    target = _target(config, tensors)
    seen.append(fingerprint(config))
    if isinstance(draft, Ngram):
        built = DraftModel(algorithm(draft), NgramSettings(draft.max_n, draft.min_n))
    else:
        source = Source(config, tensors, target, draft, device)
        built = DraftModel(draft.algorithm, _BUILD[draft.algorithm](source))
    seen.append(fingerprint(config))
    return Pair(target, built, config, tuple(seen))


def _target(config: Any, tensors: Tensors) -> RealTarget:
    fields = target_fields(config)
    if is_hybrid(fields):
        hybrid = build_target(config, tensors)
        return _read_whole(hybrid, tensors, OTHER_PARTS)
    if is_grouped(fields):
        grouped = build_grouped(config, tensors)
        return _read_whole(grouped, tensors, mtp_prefixes(grouped.config))
    return _read_whole(Dense(parse_config(fields), tensors), tensors, ())


def _read_whole(target: RealTarget, tensors: Tensors, others: tuple[str, ...]) -> RealTarget:
    """The target, if nothing was left unread but `others`. Some writers repeat a tied lm_head."""
    tensors.refuse_unread(*others, *(("lm_head.weight",) if target.config.tied else ()))
    return target


def _eagle(source: Source) -> Head:
    config, target, draft = source.config, source.target, source.draft
    if draft.built_in:
        if isinstance(target, Hybrid):
            return build_mtp(config, source.tensors, target)
        return FirstLayer(build_chain(config, source.tensors, _with_mtp(target), 1))
    if draft.path:
        return load_head(draft.path, target, source.device, target.hidden_dtype)
    sizes = head_config(_parse(draft_fields(config)))
    arrays = random_head(_sizes(sizes), draft.seed)
    weights = {name: torch.from_numpy(array).to(source.device, target.hidden_dtype) for name, array in arrays.items()}
    return EagleHead(sizes, weights, target)


def _mtp(source: Source) -> Chain:
    if source.draft.path:
        raise CheckpointError(
            f"path of an mtp draft is {source.draft.path!r}; allowed: none, the target's checkpoint brings the layers"
        )
    if isinstance(source.target, Hybrid):
        return OneLayer(build_mtp(source.config, source.tensors, source.target))
    return build_chain(source.config, source.tensors, _with_mtp(source.target))


def _dflash(source: Source) -> Block:
    target = source.target
    return load_dflash(_directory(source.draft), target, source.device, target.hidden_dtype)


def _standalone(source: Source) -> Target:
    """A language model of its own, of the target's vocabulary and without states that a rejected token would change."""
    path, target = _directory(source.draft), source.target
    config = read_json(path)
    if isinstance(_parse(target_fields(config)), HybridConfig):
        raise CheckpointError(f"{path} has layers of {LINEAR}; allowed for a standalone draft: full_attention")
    draft = _target(config, open_tensors(path, source.device, target.hidden_dtype))
    if draft.vocab != target.vocab:
        raise CheckpointError(f"vocab_size of the draft is {draft.vocab}; allowed for this target: {target.vocab}")
    return draft


_BUILD: dict[str, Callable[[Source], Head | Chain | Block | Target]] = {
    "eagle": _eagle,
    "mtp": _mtp,
    "dflash": _dflash,
    "standalone": _standalone,
}


def _with_mtp(target: RealTarget) -> Grouped:
    if not isinstance(target, Grouped):
        raise CheckpointError("built_in is True; allowed: False, this architecture has no draft of its own")
    return target


def _directory(draft: CheckpointDraft) -> str:
    if not draft.path or draft.built_in:
        named = "built into the target" if draft.built_in else "not given"
        raise CheckpointError(f"path of a {draft.algorithm} draft is {named}; allowed: a checkpoint directory")
    return draft.path


def _parse(fields: dict[str, Any]) -> DenseConfig | HybridConfig | GroupedConfig:
    if is_hybrid(fields):
        return parse_hybrid(fields)
    return parse_grouped(fields) if is_grouped(fields) else parse_config(fields)


def _sizes(config: DenseConfig) -> HeadSizes:
    return HeadSizes(config.width, config.intermediate, config.heads, config.kv_heads, config.head_dim, config.qk_norm)
