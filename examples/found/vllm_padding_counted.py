"""vLLM: a prompt's last token is padded with placeholders beside running requests, and these are counted as drafts.

The n-gram draft looks for eight tokens that came before, which there are none of: nothing is ever drafted.
"""

import json
import os
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
from vllm import LLM, SamplingParams

llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 64}
llama |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64}
target = tempfile.mkdtemp()
with open(f"{target}/config.json", "w") as file:
    json.dump(llama | {"num_hidden_layers": 2, "max_position_embeddings": 128}, file)
draft = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 8, "prompt_lookup_max": 8}
engine = {"load_format": "dummy", "dtype": "float32", "enforce_eager": True, "skip_tokenizer_init": True}
engine |= {"max_num_seqs": 2, "max_model_len": 128, "kv_cache_memory_bytes": 1 << 26, "disable_log_stats": False}
llm = LLM(target, speculative_config=draft, async_scheduling=False, **engine)
for lengths in ((5,), (1,), (5, 6), (5, 1)):
    for index, length in enumerate(lengths):
        limits = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)
        llm.llm_engine.add_request(str(index), {"prompt_token_ids": list(range(1, length + 1))}, limits)
        llm.llm_engine.step()
    while llm.llm_engine.has_unfinished_requests():
        llm.llm_engine.step()
    counted = {one.name: one.value for one in llm.get_metrics() if "spec_decode_num_draft" in one.name}
    print("prompts of", *lengths, "tokens:", counted)
