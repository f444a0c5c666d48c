"""Write tiny checkpoints of sizes that other engines' attention takes, and EAGLE heads in the layout that they read.

    draftproof lab checkpoints --wide .draftproof/engines
    draftproof check --model .draftproof/engines/llama --draft eagle --draft-model .draftproof/engines/eagle-llama
        --subject vllm --python ENV/bin/python

vLLM's attention on a CPU takes heads of 32 lanes and more, of compressed attention 512 and 64 lanes, in pages of 32 (of
compressed attention 16); SGLang's gated delta nets heads of 2^n lanes. A server wants more: a tokenizer, and texts that
no end id cuts (`--server`). Targets are those of tiny_checkpoints.py with one MTP layer, since both run one: `llama`,
`qwen3`, `glm4-moe`, `deepseek-v3`, `mimo`, `qwen3-next`; `eagle-llama` is a head of random weights for `llama`,
`eagle3-qwen3` an EAGLE-3 head for `qwen3` of a width, an embedding and a vocabulary of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from draftproof.faults import tiny_checkpoints as tiny
from draftproof.harness.head_files import write_head

_WIDTH = 192
_SIZES: dict[str, Any] = {"hidden_size": _WIDTH, "head_dim": 32}
# Fields of published files that transformers has no use for, and vLLM has; and the epsilon that transformers takes for
# norms of latents whatever the file says.
SCORING = {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "rms_norm_eps": 1e-6}
EAGLE3_SIZES: dict[str, Any] = {**tiny.EAGLE3, "head_dim": 32, "num_attention_heads": 6, "num_key_value_heads": 6}
EAGLE3_SIZES |= {"hidden_size": 144, "target_hidden_size": _WIDTH, "draft_vocab_size": tiny.EAGLE3_VOCAB}
EAGLE3_SIZES |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 512}
HYBRID_SIZES: dict[str, Any] = {**tiny.QWEN3_NEXT, **_SIZES, "linear_key_head_dim": 16, "linear_value_head_dim": 32}
HYBRID_SIZES |= {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "mlp_only_layers": []}
HYBRID_SIZES["layer_types"] = ["linear_attention"] * 3 + ["full_attention"]
# As published: SGLang reads which layers attend from an interval, and what RoPE is from fields of their own.
PUBLISHED_OF_QWEN: dict[str, Any] = {"full_attention_interval": 4, "partial_rotary_factor": 0.25, "rope_scaling": None}
PUBLISHED_OF_QWEN |= {"rope_theta": tiny.ROPE["rope_theta"], "decoder_sparse_step": 1}
_LATENTS = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}


def write_all(directory: Path, seed: int = tiny.SEED) -> None:
    """Write every checkpoint into a folder of its own."""
    alike = tiny.Alike(seed, _WIDTH)
    compressed = {name: value for name, value in _SIZES.items() if name != "head_dim"}
    for name, architecture, fields in (
        ("glm4-moe", "Glm4MoeForCausalLM", {**tiny.GLM4_MOE, **_SIZES}),
        ("deepseek-v3", "DeepseekV3ForCausalLM", {**tiny.DEEPSEEK_V3, **compressed, **_LATENTS, **SCORING}),
    ):
        target = tiny.write(tiny.model(architecture, fields, num_mtp_layers=1), directory / name, alike)
        sparse = {"num_hidden_layers": 1, "first_k_dense_replace": 0, "num_mtp_layers": 0}
        tiny.add_mtp_layers(target, tiny.model(architecture, fields, **sparse), alike)
    hybrid = tiny.write(tiny.model("Qwen3NextForCausalLM", HYBRID_SIZES), directory / "qwen3-next", alike)
    layer = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    tiny.add_mtp_of_qwen(hybrid, tiny.model("Qwen3NextForCausalLM", HYBRID_SIZES, **layer), alike)
    fields = json.loads((hybrid / "config.json").read_text()) | PUBLISHED_OF_QWEN
    del fields["rope_parameters"]
    (hybrid / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    plain = {**tiny.TINY_SIZES, **_SIZES}
    tiny.add_mtp_of_mimo(tiny.write(tiny.model("Qwen2ForCausalLM", plain), directory / "mimo", alike), alike, 1, plain)
    # The three layers that feed an EAGLE-3 head by default are others only in a target of seven layers or more.
    tiny.write(tiny.model("Qwen3ForCausalLM", {**plain, "num_hidden_layers": 8}), directory / "qwen3", alike)
    tiny.write_eagle3(EAGLE3_SIZES, directory / "eagle3-qwen3", alike)
    llama = tiny.write(tiny.model("LlamaForCausalLM", {**tiny.LLAMA, **_SIZES}), directory / "llama", alike)
    write_head(llama, directory / "eagle-llama", None, seed)


def make_servable(directory: Path) -> None:
    """Give every target in a folder a tokenizer whose words are its ids in digits, and take its end id away."""
    for path in (*directory.glob("*/config.json"), *directory.glob("*/generation_config.json")):
        fields = json.loads(path.read_text())
        path.write_text(json.dumps({**fields, "eos_token_id": None}, indent=2) + "\n")
        if path.name == "generation_config.json":
            words = {str(number): number for number in range(tiny.VOCAB)}
            tokenizer = Tokenizer(models.WordLevel(words, unk_token="0"))
            tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
            PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path.parent)
