"""vLLM 0.32.0: GLM-4-MoE's MTP layer hands on its state from before `shared_head.norm`; prints True, False."""

import json
import os
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
import torch
from vllm import LLM, SamplingParams

glm = {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "vocab_size": 64, "hidden_size": 64}
glm |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64}
glm |= {"num_hidden_layers": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
glm |= {"first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "max_position_embeddings": 128}
folder = tempfile.mkdtemp()
with open(f"{folder}/config.json", "w") as file:
    json.dump(glm, file)
engine = {"load_format": "dummy", "dtype": "float32", "enforce_eager": True, "skip_tokenizer_init": True}
engine |= {"max_model_len": 128, "kv_cache_memory_bytes": 1 << 26, "async_scheduling": False}
llm = LLM(folder, speculative_config={"method": "mtp", "num_speculative_tokens": 2}, **engine)
drafter = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner.drafter.model
seen = []  # of each draft step: what it was given, and its state
drafter.register_forward_hook(
    lambda _, args, named, out: seen.append((named["hidden_states"].clone(), out.clone())), with_kwargs=True
)
llm.generate([{"prompt_token_ids": [1, 2, 3]}], SamplingParams(temperature=0, max_tokens=2, detokenize=False))
state, handed_on = seen[0][1][2:3], seen[1][0]
after = drafter.model.layers["2"].shared_head.norm(state)
print(torch.allclose(handed_on, state), torch.allclose(handed_on, after))
