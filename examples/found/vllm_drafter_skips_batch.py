"""vLLM 0.32.0: near one request's `max_model_len` nobody in the batch is drafted for, and others keep holes.

Prints positions of the second request, of 4 tokens, at which the drafter never ran.
"""

import json
import os
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
from vllm import LLM, SamplingParams

llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 64}
llama |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64}
target, head = tempfile.mkdtemp(), tempfile.mkdtemp()
for folder, layers in ((target, 2), (head, 1)):
    with open(f"{folder}/config.json", "w") as file:
        json.dump(llama | {"num_hidden_layers": layers, "max_position_embeddings": 64}, file)
draft = {"method": "eagle", "model": head, "num_speculative_tokens": 3}
engine = {"load_format": "dummy", "dtype": "float32", "enforce_eager": True, "skip_tokenizer_init": True}
engine |= {"max_num_seqs": 2, "max_model_len": 64, "kv_cache_memory_bytes": 1 << 26, "async_scheduling": False}
llm, seen = LLM(target, speculative_config=draft, **engine), []
drafter = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner.drafter.model
drafter.register_forward_pre_hook(
    lambda _, args, named: seen.append(set(named["positions"].tolist())), with_kwargs=True
)
prompts = [{"prompt_token_ids": list(range(1, count + 1))} for count in (58, 4)]
llm.generate(prompts, [SamplingParams(temperature=0, max_tokens=n, detokenize=False, ignore_eos=True) for n in (6, 30)])
print(sorted(set(range(4, 33)).difference(*seen[1:])))  # seen[0] is the forward over both prompts
