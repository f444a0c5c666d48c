"""MiMo (7B) in float64: a Qwen2 model, which is Llama with biases of queries, keys and values, and its MTP layers.

Layer j is stored as `model.mtp_layers.{j}.`. It takes the target's state before its final norm. Its projection takes
the hidden state first, then the embedding; the embedding at position 0 is zero; what is handed on is the state after
the layer's norm. Embedding and lm_head are the target's. Sources: vLLM `mimo.py` (its model returns the state before
the norm) and `mimo_mtp.py`, both by the model's authors (vllm-project/vllm#17433); turboderp-org/exllamav3#238, which
measured it; the modelling file published with XiaomiMiMo/MiMo-7B-RL.
"""

from pathlib import Path

from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, MimoConfig, eagle_layer
from draftproof.reference.models.attention import head_size, kv_head_count
from draftproof.reference.models.layers import with_prefix
from draftproof.reference.models.llama import ReferenceLlama, dense_shapes
from draftproof.reference.models.mtp_layer import MtpForm, MtpLayer, joint_shapes
from draftproof.reference.models.target import DraftLayer
from draftproof.reference.models.tensors import LM_HEAD, read_tensors

_PREFIX = "model.mtp_layers."
_JOINT = {
    "enorm": "token_layernorm",
    "hnorm": "hidden_layernorm",
    "eh_proj": "input_proj",
    "shared_head.norm": "final_layernorm",
}
"""What joins an MTP layer to its target: names in GLM-4-MoE, and those here."""


class ReferenceMimo(ReferenceLlama):
    """MiMoForCausalLM."""

    config: MimoConfig

    @staticmethod
    def eagle_config(config: LlamaConfig) -> LlamaConfig:
        """Return the configuration of an EAGLE head, which has no biases."""
        return eagle_layer(config, kv_head_count(config), head_size(config), config.intermediate_size)

    @staticmethod
    def unread_prefixes(config: LlamaConfig) -> tuple[str, ...]:
        """Return the prefix of the MTP layers."""
        return (_PREFIX,)

    def mtp_layers(self, directory: str | Path) -> tuple[DraftLayer, ...]:
        """Read every MTP layer of the target's directory. Raises CheckpointError, also where there is none."""
        config, joint = self.config, joint_shapes(self.config.hidden_size)
        config.check_mtp(str(directory))
        one = dense_shapes(config) | {f"{stored}.weight": joint[f"{name}.weight"] for name, stored in _JOINT.items()}
        prefixes = [f"{_PREFIX}{layer}." for layer in range(config.num_nextn_predict_layers)]
        shapes = {prefix + name: shape for prefix in prefixes for name, shape in one.items()}
        ignored = ("model.embed_tokens.", "model.layers.", "model.norm.", LM_HEAD)
        tensors = read_tensors(directory, shapes, ignored_prefixes=ignored, dtype=self.dtype)
        form, layers = (
            MtpForm(takes="before_norm", masks_first=True, hidden_first=True),
            [with_prefix(tensors, prefix) for prefix in prefixes],
        )
        for layer in layers:
            layer |= {f"{name}.weight": layer[f"{stored}.weight"] for name, stored in _JOINT.items()}
        return tuple(MtpLayer(self, layer, form) for layer in layers)
