"""The architectures that can be read as targets. A new one is a file of this folder and a line of `ENGINE_MODELS`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.engine.models.checkpoint import Tensors, open_tensors
from draftproof.engine.models.config_fields import target_fields
from draftproof.engine.models.deepseek_v3 import DeepseekV3
from draftproof.engine.models.glm4_moe import Glm4Moe
from draftproof.engine.models.llama import Llama
from draftproof.engine.models.mimo import Mimo
from draftproof.engine.models.qwen3_next import Qwen3Next
from draftproof.engine.models.step3p5 import Step3p5
from draftproof.engine.models.target import CheckpointTarget
from draftproof.properties.formats.checkpoint_config import parse_config, read_fields
from draftproof.properties.formats.checkpoint_config.base import invalid

ENGINE_MODELS: dict[str, type[CheckpointTarget[Any]]] = {
    "LlamaForCausalLM": Llama,
    "Qwen3ForCausalLM": Llama,
    "MiMoForCausalLM": Mimo,
    "Step3p5ForCausalLM": Step3p5,
    "Qwen3NextForCausalLM": Qwen3Next,
    "Qwen3_5ForCausalLM": Qwen3Next,
    "Qwen3_5ForConditionalGeneration": Qwen3Next,
    "Qwen3_5MoeForCausalLM": Qwen3Next,
    "Qwen3_5MoeForConditionalGeneration": Qwen3Next,
    "Glm4MoeForCausalLM": Glm4Moe,
    "DeepseekV3ForCausalLM": DeepseekV3,
}


def build_target(config: Any, tensors: Mapping[str, Tensor]) -> CheckpointTarget[Any]:
    """Return the target of a configuration object, which is only read (config_fields). Raises CheckpointError."""
    parsed = parse_config(target_fields(config))
    if parsed.architecture not in ENGINE_MODELS:
        raise invalid("the configuration", "architectures", [parsed.architecture], f"one of {', '.join(ENGINE_MODELS)}")
    target = ENGINE_MODELS[parsed.architecture](parsed, tensors)
    if isinstance(tensors, Tensors):
        # Some writers repeat a tied lm_head.
        tensors.refuse_unread(*target.unread_prefixes(), *(("lm_head.weight",) if parsed.tie_word_embeddings else ()))
    return target


def load_target(directory: str | Path, device: str | torch.device, dtype: torch.dtype) -> CheckpointTarget[Any]:
    """Read a checkpoint directory. Raises CheckpointError."""
    return build_target(read_fields(directory), open_tensors(directory, device, dtype))
