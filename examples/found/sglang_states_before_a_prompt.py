"""SGLang 0.5.9 to 0.5.14: chained layers keep states that lie before a prompt shorter than there are layers.

python sglang_states_before_a_prompt.py UNPACKED_WHEEL
"""

import importlib.util
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
import torch

folder = Path(sys.argv[1], "sglang/srt/speculative")
files = [folder / "multi_layer_eagle_utils.py", folder / "triton_ops/multi_layer_eagle.py"]
spec = importlib.util.spec_from_file_location("utils", next(one for one in reversed(files) if one.is_file()))
utils = importlib.util.module_from_spec(spec)
spec.loader.exec_module(utils)

memory = torch.full((6, 1), -1.0)  # what lies before the states of a batch of two prompts, of one token and of two
states = memory[3:]
states[:, 0] = torch.tensor([10.0, 20.0, 21.0])
pool = torch.zeros(2, 3, 1)  # three states a request, as four layers keep
lengths, starts = torch.tensor([1, 2]), torch.tensor([0, 1])
utils.assign_hidden_states_pool_triton(states, torch.tensor([0, 1]), pool, 3, 2, lengths, starts)
print("kept of the prompt [10]:", pool[0].flatten().tolist(), "of [20, 21]:", pool[1].flatten().tolist())
