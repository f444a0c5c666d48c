"""What GLM-4-MoE and DeepSeek-V3 share in float64: layers with an MLP, layers with experts, and layers for MTP.

A layer is x + attention(norm(x)), then that + mlp(norm(that)). Letters: `D` hidden size, `Nq` query heads, `N`
key-value heads, `H` head size.
"""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from draftproof.properties.values.checkpoint_config.sparse import GroupedMoeConfig
from draftproof.reference.models.grouped_moe import expert_shapes, feed_forward
from draftproof.reference.models.layers import KV, attend_causally, mlp_shapes, norm_shapes, rms_norm, with_prefix
from draftproof.reference.models.mtp_layer import MtpLayer, joint_shapes
from draftproof.reference.models.target import DraftLayer, ReferenceCheckpointTarget, check_same
from draftproof.reference.models.tensors import EMBEDDING, FINAL_NORM, LM_HEAD, Shapes, read_tensors

G = TypeVar("G", bound=GroupedMoeConfig)


class ReferenceGroupedTarget(ReferenceCheckpointTarget[G]):
    """A target with experts in groups; an architecture brings its attention."""

    @staticmethod
    @abstractmethod
    def attention_shapes(config: G) -> Shapes:
        """Return name and shape of every tensor of the attention."""

    @abstractmethod
    def queries_keys_values(self, x: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return q [n, Nq, H], k [n, N, H] and v [n, N, E] of x [n, D] as they are attended, after RoPE."""

    @classmethod
    def layer_shapes(cls, config: G, index: int) -> Shapes:
        """See ReferenceCheckpointTarget; MTP layers have experts even where the model's first have none."""
        sparse = index >= config.first_k_dense_replace or index >= config.num_hidden_layers
        d = config.hidden_size
        rest = expert_shapes(config) if sparse else mlp_shapes("mlp.", config.intermediate_size, d)
        return norm_shapes(d) | cls.attention_shapes(config) | rest

    @staticmethod
    def unread_prefixes(config: G) -> tuple[str, ...]:
        """Return those of the MTP layers, which count on after those of the model."""
        first = config.num_hidden_layers
        return tuple(f"model.layers.{first + j}." for j in range(config.num_nextn_predict_layers))

    def layer(self, index: int, x: Tensor) -> tuple[Tensor, KV | None, Tensor | None]:
        """See ReferenceCheckpointTarget."""
        return *self.run_layer(x, self.layers[index]), None

    def run_layer(self, x: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor, KV]:
        """Run a decoder layer over x [n, D]: [n, D], and its KV entries."""
        eps = self.config.rms_norm_eps
        q, k, v = self.queries_keys_values(rms_norm(x, weights["input_layernorm.weight"], eps), weights)
        x = x + project(attend_causally(q, k, v), weights, "o_proj")
        normed = rms_norm(x, weights["post_attention_layernorm.weight"], eps)
        return x + feed_forward(normed, weights, self.config), (k, v)

    def mtp_layers(self, directory: str | Path) -> tuple[DraftLayer, ...]:
        """Read every MTP layer of the target's directory. Raises CheckpointError, also where there is none.

        An embedding or a head of its own must be the target's: transformers takes the target's without looking.
        """
        config, prefixes = self.config, self.unread_prefixes(self.config)
        config.check_mtp(str(directory))
        layer = joint_shapes(config.hidden_size) | self.layer_shapes(config, config.num_hidden_layers)
        shapes = {prefix + name: shape for prefix in prefixes for name, shape in layer.items()}
        repeated = {
            prefix + name: original
            for prefix in prefixes
            for name, original in (("embed_tokens.weight", self.embedding), ("shared_head.head.weight", self.lm_head))
        }
        own = tuple(f"model.layers.{i}." for i in range(config.num_hidden_layers))
        width: tuple[int, ...] = (config.vocab_size, config.hidden_size)
        optional = dict.fromkeys(repeated, width)
        ignored = (EMBEDDING, FINAL_NORM, LM_HEAD, *own)
        tensors = read_tensors(directory, shapes, optional=optional, ignored_prefixes=ignored)
        for name, original in repeated.items():
            check_same(tensors, name, original, directory)
        return tuple(MtpLayer(self, with_prefix(tensors, prefix)) for prefix in prefixes)


def project(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Return x times a matrix of the attention, plus its bias if it has one."""
    out = x @ weights[f"self_attn.{name}.weight"].T
    bias = weights.get(f"self_attn.{name}.bias")
    return out if bias is None else out + bias
