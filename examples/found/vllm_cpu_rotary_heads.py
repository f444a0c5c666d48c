"""vLLM 0.32.0 on a CPU: rotary embedding of [tokens, heads, lanes], as DeepSeek's attention calls it, is wrong.

Head i of token t is turned by the position of "token" t * heads + i, most of which lie behind the end of the tensor.
"""

import os

import torch

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope

tokens, heads, lanes = 4, 3, 64
with set_current_vllm_config(VllmConfig()):
    rope = get_rope(lanes, max_position=128, is_neox_style=False, rope_parameters={"rope_theta": 1e4})
room = torch.zeros(tokens * heads, dtype=torch.int64)  # what lies behind the positions, so that nothing is read astray
room[:tokens] = torch.arange(tokens)
q, k = torch.ones(tokens, heads, lanes), torch.ones(tokens * heads, 1, lanes)[:tokens]
right, _ = rope.forward_native(room[:tokens], q.clone(), k.clone())
flat, _ = rope.forward_cpu(room[:tokens], q.clone().flatten(1), k.clone().flatten(1))
cpu, _ = rope.forward_cpu(room[:tokens], q.clone(), k)
print("two dimensions:  ", (flat.view_as(q) - right).abs().amax(-1).tolist())
print("three dimensions:", (cpu - right).abs().amax(-1).tolist())
