"""vLLM: the EAGLE entry at the end of a prompt's chunk embeds the prompt's last token, not the next one.

python vllm_eagle_chunk_end.py    # 0.32.0: [2, .. 8, 20], [10, .. 16, 20]; with --unpadded 9 and 17 in place of 20
"""

import json
import os
import sys
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
from vllm import LLM, SamplingParams

llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 64}
llama |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64}
target, head = tempfile.mkdtemp(), tempfile.mkdtemp()
for folder, layers in ((target, 2), (head, 1)):
    with open(f"{folder}/config.json", "w") as file:
        json.dump(llama | {"num_hidden_layers": layers, "max_position_embeddings": 128}, file)
draft = {"method": "eagle", "model": head, "num_speculative_tokens": 2}
draft["disable_padded_drafter_batch"] = "--unpadded" in sys.argv
engine = {"load_format": "dummy", "dtype": "float32", "enforce_eager": True, "skip_tokenizer_init": True}
engine |= {"max_num_batched_tokens": 8, "max_num_seqs": 2, "max_model_len": 128, "kv_cache_memory_bytes": 1 << 26}
llm = LLM(target, speculative_config=draft, async_scheduling=False, **engine)
drafter = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner.drafter.model
drafter.register_forward_pre_hook(lambda _, args, named: print(named["input_ids"].tolist()), with_kwargs=True)
prompt = {"prompt_token_ids": list(range(1, 21))}  # chunks 1 .. 8, 9 .. 16, 17 .. 20
llm.generate([prompt], SamplingParams(temperature=0, max_tokens=1, detokenize=False), use_tqdm=False)
