"""vLLM on CPUs: a request's temperature, top_k and top_p do not reach its tokens.

python vllm_cpu_expand.py    # 0.32.0: numbers that stood in memory, but right ones for int64
"""

import importlib

import torch
from vllm.platforms import current_platform

current_platform.import_kernels()
current_platform.register_triton_kernel_overrides()  # as CPU workers do
sampler = importlib.import_module("vllm.v1.sample.rejection_sampler")
ends = torch.tensor([2, 3], dtype=torch.int32)
for given in (torch.tensor([0.5, 2.0]), torch.tensor([5, 9], dtype=torch.int32), torch.tensor([5, 9])):
    made = sampler.expand_batch_to_tokens(given, ends, 3)
    print(given.dtype, given.tolist(), "for two tokens and one:", made.tolist())
