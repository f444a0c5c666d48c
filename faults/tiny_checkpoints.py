"""Write tiny checkpoints of every architecture that can be checked, targets and drafts, with random weights.

    pip install 'transformers>=5.17'
    draftproof lab checkpoints .draftproof/tiny
    draftproof check --model .draftproof/tiny/glm4-moe --draft all --draft-model .draftproof/tiny/dflash
    draftproof check --model .draftproof/tiny/deepseek-v3 --draft standalone --draft-model .draftproof/tiny/llama

| directory | target | MTP layers |
|---|---|---|
| glm4-moe | Glm4MoeForCausalLM | 3 (`--mtp-layers`) |
| deepseek-v3 | DeepseekV3ForCausalLM | 2 |
| deepseek-lite | the same without latents of queries, with biases, and scaled experts that are not normed | none |
| qwen3-next | Qwen3NextForCausalLM | 1, as `mtp.*` |
| qwen3.5-moe | Qwen3_5MoeForCausalLM, whose experts are one tensor, those of `mtp.*` apart | 1, as `mtp.*` |
| mimo | MiMoForCausalLM, a Qwen2 model | 2, as `model.mtp_layers.*` |
| step3p5 | Step3p5ForCausalLM, of full attention | 3, with an embedding and a head of their own |
| qwen3 | Qwen3ForCausalLM | none |
| llama | LlamaForCausalLM of llama3's RoPE, with half of the others' layers: a standalone draft | none |
| llama-fp8 | the same, with scales of its KV entries: `--kv-cache-dtype fp8_e4m3` | none |
| dflash | MuseGlimmerAssistantModel, a DFlash draft | |
| eagle3 | an EAGLE-3 head as SafeAILab writes it, of a width, an embedding and a vocabulary of its own | |
| eagle3-unlisted | the same, but that its config.json lists no layers of the target | |
| eagle3-speculators | an EAGLE-3 head as `speculators` writes it: a Qwen3 layer, with all sizes of the target | |

Every draft goes with every target, but for dflash and EAGLE-3 with llama, which has no third layer. All targets share
one embedding, one final norm and one head, and what a layer adds is small beside them: so the best token is best by
far, and MTP layers and the smaller model often agree with a target. A DFlash draft, whose masked rows know nothing of
the tokens before them, rarely does.

Every constant of a config.json is one that shows if another is used in its place: epsilons that matter beside a state,
bases and scales that no architecture has by default, tables as long as the contexts.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

VOCAB, SEED = 67, 2
ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 2900.0}
TINY_SIZES: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 4}
TINY_SIZES |= {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512}
TINY_SIZES |= {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": None, "tie_word_embeddings": False}
TINY_SIZES |= {"rms_norm_eps": 3e-3, "rope_parameters": ROPE}
EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 20,
    "n_routed_experts": 12,
    "num_experts_per_tok": 4,
    "n_shared_experts": 1,
}
EXPERTS |= {"n_group": 3, "topk_group": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 1.7}
_LATENTS = {"q_lora_rank": 28, "kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
GLM4_MOE: dict[str, Any] = {
    **TINY_SIZES,
    **EXPERTS,
    "rope_parameters": {**ROPE, "partial_rotary_factor": 0.5},
    "attention_bias": True,
    "use_qk_norm": True,
}
DEEPSEEK_V3 = {**TINY_SIZES, **EXPERTS, **_LATENTS, "num_key_value_heads": 6}
del DEEPSEEK_V3["head_dim"]
QWEN3_NEXT: dict[str, Any] = {
    **TINY_SIZES,
    "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25},
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "norm_topk_prob": False,
    "moe_intermediate_size": 20,
    "shared_expert_intermediate_size": 24,
    "mlp_only_layers": [1],
}
# M-RoPE, which positions of text cannot tell from RoPE.
MROPE = {**ROPE, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
QWEN3_5_MOE = {**QWEN3_NEXT, "rope_parameters": MROPE}
del QWEN3_5_MOE["intermediate_size"], QWEN3_5_MOE["mlp_only_layers"]
# Wavelengths of the eight pairs run from 6 to 7e3 tokens: with these limits some are short, some long, some between.
LLAMA3_ROPE = {**ROPE, "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 128}
LLAMA3_ROPE |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA = {**TINY_SIZES, "num_hidden_layers": 2, "rope_parameters": LLAMA3_ROPE}
# No two alike. The first is so small that the largest keys are beyond what FP8 holds.
SCALES = ((0.006, 0.05), (0.31, 0.7))
# Not two heads of keys: two and two would be two by two.
DFLASH = {**TINY_SIZES, "num_key_value_heads": 3, "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
DFLASH |= {"target_layer_ids": [0, 2], "block_size": 8, "mask_token_id": VOCAB - 1}
del DFLASH["vocab_size"], DFLASH["tie_word_embeddings"]
EAGLE3: dict[str, Any] = {name: TINY_SIZES[name] for name in ("vocab_size", "intermediate_size", "rms_norm_eps")}
EAGLE3 |= {"num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 16}
EAGLE3 |= {"rope_parameters": TINY_SIZES["rope_parameters"]}
EAGLE3_VOCAB, EAGLE3_WIDTH = 50, 40

STEP: dict[str, Any] = {
    **TINY_SIZES,
    "rope_parameters": {"full_attention": {**ROPE, "partial_rotary_factor": 0.5}},
    "moe_intermediate_size": 20,
    "n_routed_experts": 12,
    "num_experts_per_tok": 4,
    "share_expert_dim": 24,
    "moe_router_scaling_factor": 1.5,
    "pad_token_id": 0,
}
# Of config.json, transformers' names and the published ones; then of tensors.
RENAMED_OF_STEP = {"n_routed_experts": "moe_num_experts", "num_experts_per_tok": "moe_top_k"}
RENAMED_OF_STEP |= {"num_key_value_heads": "num_attention_groups"}
PUBLISHED_OF_STEP = {"mlp.experts.down_proj": "moe.down_proj.weight", "mlp.gate.weight": "moe.gate.weight"}
PUBLISHED_OF_STEP |= {"mlp.gate.e_score_correction_bias": "moe.router_bias", "mlp.shared_experts.": "share_expert."}

# What a layer adds, against what it would add if all states were to have unit size.
_GAIN = 0.12
_SMALL = 0.03
# Models that add one to the weight of a norm.
ONE_PLUS = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "step3p5")


def _beside_epsilon(name: str, drawn: Tensor) -> Tensor:
    """Make those rows small whose products a norm divides by their length plus an epsilon that no config.json has."""
    if name.endswith("q_a_proj.weight"):
        drawn *= _SMALL
    if name.endswith("kv_a_proj_with_mqa.weight"):
        drawn[: _LATENTS["kv_lora_rank"]] *= _SMALL
    if name.endswith("conv1d.weight"):
        drawn[: 2 * QWEN3_NEXT["linear_num_key_heads"] * QWEN3_NEXT["linear_key_head_dim"]] *= _SMALL
    return drawn


class Weights(Protocol):
    """What is written beside names and shapes."""

    def source(self, directory: Path) -> torch.Generator:
        """Return what all noise of a model comes from, which is written to this folder."""

    def drawn(self, name: str, noise: Tensor, less: float) -> Tensor:
        """Return a weight; a norm is stored less what its model adds to it."""

    def joint(self, names: list[str]) -> dict[str, Tensor]:
        """Return the projection of an MTP layer, the norms of what it takes, and the norm behind the layer."""


class Alike:
    """Weights of targets that share embedding, final norm and head, and of drafts that often agree with them."""

    def __init__(self, seed: int, width: int = TINY_SIZES["hidden_size"], vocab: int = VOCAB) -> None:
        source = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(vocab, width, generator=source)
        self.norm = 1 + 0.3 * torch.randn(width, generator=source)
        self.head = 5 / width**0.5 * torch.randn(vocab, width, generator=source)

    def source(self, directory: Path) -> torch.Generator:
        return torch.Generator().manual_seed(sum(map(ord, directory.name)))

    def drawn(self, name: str, noise: Tensor, less: float) -> Tensor:
        """Return a matrix that keeps unit size, or a norm near 1."""
        shared = {"embed_tokens.weight": self.embedding, "model.norm.weight": self.norm, "lm_head.weight": self.head}
        for ending, weight in shared.items():
            if name.endswith(ending):
                return weight - (less if weight.dim() == 1 else 0.0)
        if name.endswith("o_proj.bias"):
            return _SMALL * noise
        if name.endswith(("bias", "A_log")):
            return 0.3 * noise
        if noise.dim() == 1:
            return 1 + 0.3 * noise - less
        adds = name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj"))
        return _beside_epsilon(name, noise * (_GAIN if adds else 1.5) / noise.shape[-1] ** 0.5)

    def joint(self, names: list[str]) -> dict[str, Tensor]:
        """Return a projection that mostly passes the embedding on, and norms."""
        d = len(self.norm)
        source = torch.Generator().manual_seed(sum(map(ord, names[0])))
        mixed = 0.1 * torch.randn(d, 2 * d, generator=source) / d**0.5
        parts = (torch.eye(d, 2 * d) + mixed, torch.ones(d), self.norm.clone(), self.norm.clone())
        return dict(zip(names, parts, strict=True))


def write_all(directory: Path, seed: int = SEED, mtp_layers: int = 3) -> None:
    """Write every checkpoint into a folder of its own; glm4-moe has so many MTP layers."""
    alike = Alike(seed)
    for name, architecture, fields, layers in (
        ("glm4-moe", "Glm4MoeForCausalLM", GLM4_MOE, mtp_layers),
        ("deepseek-v3", "DeepseekV3ForCausalLM", DEEPSEEK_V3, 2),
        (
            "deepseek-lite",
            "DeepseekV3ForCausalLM",
            {
                **DEEPSEEK_V3,
                "q_lora_rank": None,
                "attention_bias": True,
                "norm_topk_prob": False,
                "routed_scaling_factor": 0.7,
            },
            0,
        ),
    ):
        target = write(model(architecture, fields, num_mtp_layers=layers), directory / name, alike)
        sparse = {"num_hidden_layers": layers, "first_k_dense_replace": 0, "num_mtp_layers": 0}
        if layers:
            add_mtp_layers(target, model(architecture, fields, **sparse), alike)
    for name, architecture, fields in (
        ("qwen3-next", "Qwen3NextForCausalLM", QWEN3_NEXT),
        ("qwen3.5-moe", "Qwen3_5MoeForCausalLM", QWEN3_5_MOE),
    ):
        target = write(model(architecture, fields), directory / name, alike)
        if fields is QWEN3_5_MOE:
            stack_experts(target)
        one = model(architecture, fields, num_hidden_layers=1, layer_types=["full_attention"])
        add_mtp_of_qwen(target, one, alike)
    add_mtp_of_mimo(write(model("Qwen2ForCausalLM", TINY_SIZES), directory / "mimo", alike), alike, 2)
    write_step(directory / "step3p5", alike, 3)
    write(model("Qwen3ForCausalLM", TINY_SIZES), directory / "qwen3", alike)
    write(model("LlamaForCausalLM", LLAMA), directory / "llama", alike)
    add_scales(write(model("LlamaForCausalLM", LLAMA), directory / "llama-fp8", alike))
    write(model("MuseGlimmerAssistantModel", DFLASH), directory / "dflash", alike)
    head = {"draft_vocab_size": EAGLE3_VOCAB, "target_hidden_size": TINY_SIZES["hidden_size"]}
    ours = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 0]}, "hidden_size": EAGLE3_WIDTH}
    plain = {"architectures": ["LlamaForCausalLM"], **EAGLE3, **head}
    write_eagle3({**plain, **ours}, directory / "eagle3", alike)
    write_eagle3({**plain, "hidden_size": EAGLE3_WIDTH}, directory / "eagle3-unlisted", alike)
    layer = {**EAGLE3, "hidden_size": TINY_SIZES["hidden_size"], "model_type": "qwen3"}
    theirs = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "norm_before_residual": True}
    theirs |= {"eagle_aux_hidden_state_layer_ids": [3, 1], "transformer_layer_config": layer}
    write_eagle3({**head, **theirs, "draft_vocab_size": VOCAB}, directory / "eagle3-speculators", alike)


def model(architecture: str, fields: dict[str, Any], **changes: Any) -> PreTrainedModel:
    """Return a model of an architecture of transformers, with the fields of its config."""
    kind = getattr(transformers, architecture)
    return kind(kind.config_class(**{**fields, **changes}))


def write(model: PreTrainedModel, directory: Path, weights: Weights, **saved: Any) -> Path:
    """Draw the weights of `model` and write it in float32; `saved` goes to transformers. Returns `directory`."""
    source = weights.source(directory)
    one_plus = model.config.model_type in ONE_PLUS
    with torch.no_grad():
        for name, weight in (*model.named_parameters(), *model.named_buffers()):
            if weight.is_floating_point() and "inv_freq" not in name:
                noise = torch.randn(weight.shape, generator=source)
                # A gated norm of linear attention is stored as it is.
                less = 1.0 if one_plus and not name.endswith("linear_attn.norm.weight") else 0.0
                weight.copy_(weights.drawn(name, noise, less))
    model.save_pretrained(directory, **saved)
    return directory


def add_scales(directory: Path) -> None:
    """Add the scales of keys and values of every layer, under both names that files have for them."""
    tensors = {}
    for i, scales in enumerate(SCALES):
        for part, scale in zip("kv", scales, strict=True):
            name = f"model.layers.{i}.self_attn." + (f"{part}_proj." if i % 2 == 0 else "") + f"{part}_scale"
            tensors[name] = torch.tensor([scale] if i % 2 == 0 else scale)
    add_tensors(directory, tensors)


def add_mtp_layers(directory: Path, layers: PreTrainedModel, weights: Weights) -> None:
    """Add the layers of a model as MTP layers, numbered on after the target's, and what joins them to the target."""
    first = json.loads((directory / "config.json").read_text())["num_hidden_layers"]
    number = re.compile(r"model\.layers\.(\d+)\.")
    tensors = {
        number.sub(lambda found: f"model.layers.{first + int(found[1])}.", name): tensor
        for name, tensor in _tensors(layers, directory / "mtp", weights).items()
        if number.match(name)
    }
    for i in range(first, first + layers.config.num_hidden_layers):
        names = ("eh_proj", "enorm", "hnorm", "shared_head.norm")
        tensors |= weights.joint([f"model.layers.{i}.{name}.weight" for name in names])
    add_tensors(directory, tensors)


def add_mtp_of_qwen(directory: Path, layer: PreTrainedModel, weights: Weights) -> None:
    """Add the one layer of a model as `mtp.*`, and what joins it to the target. Norms are stored less 1."""
    found = _tensors(layer, directory / "mtp", weights)
    tensors = {name.replace("model.", "mtp.", 1): x for name, x in found.items() if name.startswith("model.layers.")}
    names = [f"mtp.{name}.weight" for name in ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")]
    joint = weights.joint(names)
    add_tensors(directory, {**tensors, **{name: x - 1 if x.dim() == 1 else x for name, x in joint.items()}})


def stack_experts(directory: Path) -> None:
    """Store the experts of each layer as one tensor, gates above ups, as they are published."""
    stored = load_file(directory / "model.safetensors")
    of_expert = re.compile(r"(.*\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")
    parts: dict[str, dict[str, dict[int, Tensor]]] = {}
    kept: dict[str, Tensor] = {}
    for name, x in stored.items():
        if found := of_expert.fullmatch(name):
            parts.setdefault(found[1], {}).setdefault(found[3], {})[int(found[2])] = x
        else:
            kept[name] = x.clone()
    for prefix, by_part in parts.items():
        gate, up, down = (
            torch.stack([by_part[part][i] for i in sorted(by_part[part])]) for part in ("gate", "up", "down")
        )
        kept |= {f"{prefix}.gate_up_proj": torch.cat((gate, up), dim=1), f"{prefix}.down_proj": down}
    save_file(kept, directory / "model.safetensors", metadata={"format": "pt"})


def add_mtp_of_mimo(directory: Path, weights: Alike, count: int, sizes: dict[str, Any] = TINY_SIZES) -> None:
    """Make a Qwen2 checkpoint one of MiMo: add MTP layers, whose projection takes the hidden state first."""
    layers = model("Qwen2ForCausalLM", sizes, num_hidden_layers=count)
    found = _tensors(layers, directory / "mtp", weights)
    tensors = {
        name.replace("model.layers.", "model.mtp_layers."): x
        for name, x in found.items()
        if name.startswith("model.layers.")
    }
    for i in range(count):
        names = ("input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm")
        joint = weights.joint([f"model.mtp_layers.{i}.{name}.weight" for name in names])
        projection = joint[f"model.mtp_layers.{i}.input_proj.weight"]
        tensors |= joint | {f"model.mtp_layers.{i}.input_proj.weight": projection.roll(len(projection), dims=1)}
    add_tensors(directory, tensors)
    own = {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "attention_bias": True}
    _rewrite(directory, own | {"num_nextn_predict_layers": count})


def write_step(directory: Path, weights: Alike, count: int) -> None:
    """Write a checkpoint of Step-3.5 in its published layout, from the text model that transformers has of Step-3.7."""
    layers = STEP["num_hidden_layers"]
    names = {"mlp_layer_types": ["dense"] + ["sparse"] * (layers - 1) + ["dense"] * count}
    text = transformers.Step3p7TextConfig(**{**STEP, **names, "num_hidden_layers": layers + count})
    model = transformers.models.step3p7.modeling_step3p7.Step3p7TextModel(text)
    write(model, directory, weights)
    stored = load_file(directory / "model.safetensors")
    tensors = {"lm_head.weight": weights.head.clone()}
    for name, x in stored.items():
        tensors |= {f"model.{published}": part for published, part in _as_published(name, x).items()}
    source = torch.Generator().manual_seed(count)
    for i in range(layers, layers + count):
        prefix = f"model.layers.{i}."
        names_of_joint = ("eh_proj", "enorm", "hnorm", "transformer.shared_head.norm")
        joint = weights.joint([f"{prefix}{name}.weight" for name in names_of_joint])
        tensors |= {name: x - 1 if x.dim() == 1 else x for name, x in joint.items()}
        # A head that is not the target's chooses otherwise at times, an embedding gives other entries.
        own = {"embed_tokens": (weights.embedding, 0.1), "transformer.shared_head.output": (weights.head, 0.4)}
        for name, (table, share) in own.items():
            noise = table.std() * torch.randn(table.shape, generator=source)
            tensors[f"{prefix}{name}.weight"] = table + share * noise
    whole = {name: x.contiguous() for name, x in tensors.items()}
    save_file(whole, directory / "model.safetensors", metadata={"format": "pt"})
    fields: dict[str, Any] = {name: value for name, value in STEP.items() if name not in RENAMED_OF_STEP}
    fields |= {new: STEP[old] for old, new in RENAMED_OF_STEP.items()}
    fields |= {"architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "num_nextn_predict_layers": count}
    fields |= {
        "rope_theta": [ROPE["rope_theta"]] * (layers + count),
        "partial_rotary_factors": [0.5] * (layers + count),
    }
    fields |= {"layer_types": ["full_attention"] * (layers + count)}
    fields |= {"moe_layers_enum": ",".join(map(str, range(1, layers))), "rope_scaling": None}
    del fields["rope_parameters"]
    (directory / "config.json").write_text(json.dumps(fields, indent=2))


def _as_published(name: str, x: Tensor) -> dict[str, Tensor]:
    """Return what a tensor of transformers' Step-3.7 is stored as."""
    if name.endswith("mlp.experts.gate_up_proj"):
        gate, up = x.chunk(2, dim=1)
        prefix = name.replace("mlp.experts.gate_up_proj", "moe.")
        return {f"{prefix}gate_proj.weight": gate, f"{prefix}up_proj.weight": up}
    for ours, published in PUBLISHED_OF_STEP.items():
        name = name.replace(ours, published)
    return {name: x}


def _rewrite(directory: Path, fields: dict[str, Any]) -> None:
    """Change fields of config.json: of architectures that transformers has no class for."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, indent=2))


def write_eagle3(config: dict[str, Any], directory: Path, weights: Alike) -> None:
    """Write an EAGLE-3 head, whose attention mostly passes on the embedding of the entry's own token."""
    source = weights.source(directory)
    fields = config.get("transformer_layer_config", config)
    vocab, (whole, target) = config["draft_vocab_size"], weights.embedding.shape
    d, inner, size = fields["hidden_size"], fields["intermediate_size"], fields["head_dim"]
    queries, keys = (fields[f"num_{name}_heads"] * size for name in ("attention", "key_value"))
    listed = (one.get("eagle_aux_hidden_state_layer_ids") for one in (config, config.get("eagle_config", {})))
    named = next(filter(None, listed), range(3))
    layer = "layers.0" if "speculators_model_type" in config else "midlayer"
    narrow = torch.linalg.qr(torch.randn(target, target, generator=source)).Q[:, :d] if d < target else torch.eye(d)
    passed, kept = torch.eye(queries, 2 * d), torch.randperm(whole, generator=source)[:vocab].sort().values
    passed[d:] = 0

    def noisy(weight: Tensor) -> Tensor:
        """Return a weight beside which nothing that it is given is lost, the state neither."""
        return weight + 0.3 * torch.randn(weight.shape, generator=source) / weight.shape[-1] ** 0.5

    def norm() -> Tensor:
        return 1 + 0.3 * torch.randn(d, generator=source)

    tensors = {
        "fc.weight": 0.1 * torch.randn(d, len(named) * target, generator=source) / target**0.5,
        "norm.weight": torch.ones(d),
        "lm_head.weight": (weights.head * weights.norm)[kept] @ narrow,
        f"{layer}.self_attn.q_proj.weight": noisy(2 * passed),
        f"{layer}.self_attn.k_proj.weight": noisy(2 * passed[:keys]),
        f"{layer}.self_attn.v_proj.weight": noisy(passed[:keys]),
        f"{layer}.self_attn.o_proj.weight": torch.eye(d, queries),
        **{f"{layer}.{x}.weight": norm() for x in ("input_layernorm", "hidden_norm", "post_attention_layernorm")},
        **{f"{layer}.mlp.{x}_proj.weight": torch.randn(inner, d, generator=source) / d**0.5 for x in ("gate", "up")},
        f"{layer}.mlp.down_proj.weight": _GAIN * torch.randn(d, inner, generator=source) / inner**0.5,
    }
    if vocab < whole:
        tensors |= {"d2t": kept - torch.arange(vocab), "t2d": torch.isin(torch.arange(whole), kept)}
    if d < target:
        tensors["embed_tokens.weight"] = weights.embedding @ narrow
    else:
        tensors |= {f"{layer}.self_attn.{x}_norm.weight": 3 * torch.ones(size) for x in "qk"}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file({name: x.contiguous() for name, x in tensors.items()}, directory / "model.safetensors")


def _tensors(model: PreTrainedModel, folder: Path, weights: Weights) -> dict[str, Tensor]:
    """Return the tensors of a random model under the names that transformers writes."""
    tensors = {name: x.clone() for name, x in load_file(write(model, folder, weights) / "model.safetensors").items()}
    shutil.rmtree(folder)
    return tensors


def add_tensors(directory: Path, tensors: dict[str, Tensor]) -> Path:
    """Add tensors to the one file of a checkpoint. Returns `directory`."""
    file = directory / "model.safetensors"
    stored = {name: x.clone() for name, x in load_file(file).items()}
    save_file({**stored, **tensors}, file, metadata={"format": "pt"})
    return directory
