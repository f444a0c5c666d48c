"""vLLM 0.32.0 on a CPU, unpadded: draft steps grow by two; prints last position + 1 and length of each forward."""

import json
import os
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
from vllm import LLM, SamplingParams
from vllm.forward_context import get_forward_context

llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 64}
llama |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64}
target, head = tempfile.mkdtemp(), tempfile.mkdtemp()
for folder, layers in ((target, 2), (head, 1)):
    with open(f"{folder}/config.json", "w") as file:
        json.dump(llama | {"num_hidden_layers": layers, "max_position_embeddings": 128}, file)
draft = {"method": "eagle", "model": head, "num_speculative_tokens": 4, "disable_padded_drafter_batch": True}
engine = {"load_format": "dummy", "dtype": "float32", "enforce_eager": True, "skip_tokenizer_init": True}
engine |= {"max_num_seqs": 2, "max_model_len": 128, "kv_cache_memory_bytes": 1 << 26, "async_scheduling": False}
llm = LLM(target, speculative_config=draft, **engine)
drafter = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner.drafter.model


def show(_, args, named):
    length = next(iter(get_forward_context().attn_metadata.values())).seq_lens.tolist()
    print(int(named["positions"][-1]) + 1, length)


drafter.register_forward_pre_hook(show, with_kwargs=True)
llm.generate([{"prompt_token_ids": [1, 2, 3, 4]}], SamplingParams(temperature=0, max_tokens=4, detokenize=False))
