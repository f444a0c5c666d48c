"""Step-3.5 in float64: attention with a gate for each head, norms by 1 + weight, experts chosen by sigmoid scores.

MTP layer j is stored as `model.layers.{layers + j}.`, parts of it maybe below `transformer.` there. It takes the state
before the target's final norm (a later layer that before the norm of the one before it), and has a head of its own,
`shared_head.output`, and an embedding of its own, if `embed_tokens` is there. Source: SGLang and vLLM `step3p5_mtp.py`;
the target as transformers 5.23 (`Step3p7TextModel`) runs it.
Shapes: `n` tokens, `D` hidden size, `Nq` query heads, `N` key-value heads, `H` head size, `X` experts.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.formats.checkpoint_config.step3p5 import Step3p5Config
from draftproof.reference.models.attention import project
from draftproof.reference.models.experts import BIAS, ROUTER, grouped_experts
from draftproof.reference.models.layers import KV, Places, attend_causally, mlp_shapes, norm_shapes, rotate_first
from draftproof.reference.models.mtp_layer import MtpForm, MtpLayer, joint_shapes
from draftproof.reference.models.qwen3_next_layer import centred_norm
from draftproof.reference.models.target import DraftLayer, FedForward, ReferenceCheckpointTarget
from draftproof.reference.models.tensors import EMBEDDING, FINAL_NORM, LM_HEAD, Shapes, read_tensors, tensor_names


class ReferenceStep3p5(ReferenceCheckpointTarget[Step3p5Config]):
    """Step3p5ForCausalLM."""

    def __init__(self, config: Step3p5Config, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        self.layers = tuple(map(renamed, self.layers))

    @staticmethod
    def layer_shapes(config: Step3p5Config, index: int) -> Shapes:
        """See ReferenceCheckpointTarget."""
        d, size, count = config.hidden_size, config.head_dim, config.moe_num_experts
        queries, keys = config.num_attention_heads * size, config.num_attention_groups * size
        shapes: Shapes = {"self_attn.q_proj.weight": (queries, d), "self_attn.o_proj.weight": (d, queries)}
        shapes |= {f"self_attn.{name}_proj.weight": (keys, d) for name in "kv"}
        shapes |= {f"self_attn.{name}_norm.weight": (size,) for name in "qk"}
        shapes |= {"self_attn.g_proj.weight": (config.num_attention_heads, d)} | norm_shapes(d)
        if index not in config.moe_layers_enum:
            return shapes | mlp_shapes("mlp.", config.intermediate_size, d)
        stacked = {name: (count, *shape) for name, shape in mlp_shapes("moe.", config.moe_intermediate_size, d).items()}
        shared = mlp_shapes("share_expert.", config.share_expert_dim, d)
        return shapes | stacked | shared | {"moe.gate.weight": (count, d), "moe.router_bias": (count,)}

    @staticmethod
    def eagle_config(config: Step3p5Config) -> LlamaConfig:
        """Return the configuration of an EAGLE head: with an MLP as the dense layers'."""
        return eagle_layer(config, config.num_attention_groups, config.head_dim, config.intermediate_size)

    @staticmethod
    def unread_prefixes(config: Step3p5Config) -> tuple[str, ...]:
        """Return the prefixes of the MTP layers, which are numbered behind the model's."""
        first = config.num_hidden_layers
        return tuple(f"model.layers.{first + j}." for j in range(config.num_nextn_predict_layers))

    def mixer(self, x: Tensor, weights: Mapping[str, Tensor], places: Places | None = None) -> tuple[Tensor, KV]:
        """See ReferenceCheckpointTarget; what a head attended to is multiplied by the sigmoid of its gate."""
        size, rope = self.config.head_dim, self.config.rope_parameters
        q, k, v = (project(x, weights, f"{name}_proj").unflatten(-1, (-1, size)) for name in "qkv")
        q, k = (self.norm(part, weights[f"self_attn.{name}_norm.weight"]) for part, name in ((q, "q"), (k, "k")))
        q, k = (rotate_first(part, rope, int(size * rope.partial_rotary_factor), places) for part in (q, k))
        gates = torch.sigmoid(project(x, weights, "g_proj"))
        attended = attend_causally(q, k, v, places).unflatten(-1, (-1, size)) * gates[..., None]
        return project(attended.flatten(1), weights, "o_proj"), (k, v)

    def feed_forward(self, x: Tensor, weights: Mapping[str, Tensor]) -> FedForward:
        """See ReferenceCheckpointTarget."""
        return grouped_experts(x, weights, self.config)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the norm, which multiplies by 1 + weight."""
        return centred_norm(x, weight, self.config.rms_norm_eps)

    def mtp_layers(self, directory: str | Path) -> tuple[DraftLayer, ...]:
        """Read every MTP layer of the target's directory. Raises CheckpointError, also where there is none."""
        config, stored, table = self.config, tensor_names(directory), tuple(self.embedding.shape)
        config.check_mtp(str(directory))
        shapes, places = Shapes(), list[dict[str, str]]()
        for number, prefix in enumerate(self.unread_prefixes(config), start=config.num_hidden_layers):
            one = joint_shapes(config.hidden_size) | self.layer_shapes(config, number)
            one["shared_head.output.weight"] = table
            below = {name: f"{prefix}transformer.{name}" for name in (*one, "embed_tokens.weight")}
            place = {name: inner if inner in stored else prefix + name for name, inner in below.items()}
            if place["embed_tokens.weight"] in stored:
                one["embed_tokens.weight"] = table
            places.append({name: place[name] for name in one})
            shapes |= {place[name]: shape for name, shape in one.items()}
        own = (EMBEDDING, FINAL_NORM, LM_HEAD, *(f"model.layers.{i}." for i in range(config.num_hidden_layers)))
        tensors = read_tensors(directory, shapes, ignored_prefixes=own, dtype=self.dtype)
        layers = [renamed({name: tensors[at] for name, at in place.items()}) for place in places]
        form = MtpForm(takes="before_norm", handed="before_norm")
        return tuple(MtpLayer(self, layer, form) for layer in layers)


def renamed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a layer's tensors under the names that GLM-4-MoE has, experts one by one."""
    made = {name.replace("share_expert.", "mlp.shared_experts."): x for name, x in weights.items()}
    if "shared_head.output.weight" in made:
        made["shared_head.head.weight"] = made.pop("shared_head.output.weight")
    if "moe.gate.weight" in made:
        made[ROUTER], made[BIAS] = made.pop("moe.gate.weight"), made.pop("moe.router_bias")
        for name in ("gate_proj", "up_proj", "down_proj"):
            each = made.pop(f"moe.{name}.weight")
            made |= {f"mlp.experts.{i}.{name}.weight": x for i, x in enumerate(each)}
    return made
