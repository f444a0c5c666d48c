"""The architectures that the reference knows. A new one is a file of this folder and a line of `REFERENCE_MODELS`."""

from pathlib import Path
from typing import Any

import torch

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.base import invalid
from draftproof.reference.models.deepseek_v3 import ReferenceDeepseekV3
from draftproof.reference.models.glm4_moe import ReferenceGlm4Moe
from draftproof.reference.models.llama import ReferenceLlama
from draftproof.reference.models.mimo import ReferenceMimo
from draftproof.reference.models.qwen3_next import ReferenceQwen3Next
from draftproof.reference.models.step3p5 import ReferenceStep3p5
from draftproof.reference.models.target import ReferenceCheckpointTarget

REFERENCE_MODELS: dict[str, type[ReferenceCheckpointTarget[Any]]] = {
    "LlamaForCausalLM": ReferenceLlama,
    "Qwen3ForCausalLM": ReferenceLlama,
    "MiMoForCausalLM": ReferenceMimo,
    "Step3p5ForCausalLM": ReferenceStep3p5,
    "Qwen3NextForCausalLM": ReferenceQwen3Next,
    "Qwen3_5ForCausalLM": ReferenceQwen3Next,
    "Qwen3_5MoeForCausalLM": ReferenceQwen3Next,
    "Glm4MoeForCausalLM": ReferenceGlm4Moe,
    "DeepseekV3ForCausalLM": ReferenceDeepseekV3,
}


def load_target(directory: str | Path, dtype: torch.dtype = torch.float64) -> ReferenceCheckpointTarget[Any]:
    """Read a checkpoint directory, to compute in `dtype`. Raises CheckpointError for whatever is wrong with it."""
    config = read_config(directory)
    if config.architecture not in REFERENCE_MODELS:
        raise invalid(str(directory), "architectures", [config.architecture], f"one of {', '.join(REFERENCE_MODELS)}")
    return REFERENCE_MODELS[config.architecture].read(config, directory, dtype)
