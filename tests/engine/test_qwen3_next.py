"""The built-in drafts of hybrid targets against transformers and the reference.

`T` tokens, `D` hidden width, `V` vocabulary.
"""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from draftproof.engine.models.checkpoint import open_tensors
from draftproof.engine.models.mtp_chain import FirstLayer
from draftproof.engine.models.qwen3_next import Qwen3Next
from draftproof.engine.models.registry import load_target
from draftproof.properties.formats.checkpoint_config import read_fields
from draftproof.reference.models.registry import load_target as load_reference
from tests.engine.naive import NaiveCache, where
from tests.engine.test_targets import relative
from tests.reference.witness import HYBRID, load_witness
from tests.widen import Widen

WITH_MTP = [name for name in HYBRID if name != "qwen3-next-tied"]
TOKENS = 70
# Both sides are float64; they differ in summation order only.
BOUND = 1e-11


@pytest.fixture(scope="module", params=WITH_MTP)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return HYBRID[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def ids(directory: Path) -> torch.Tensor:
    source = torch.Generator().manual_seed(3)
    return torch.randint(0, read_fields(directory)["vocab_size"], (TOKENS,), generator=source)


def mtp_of(directory: Path, target: Qwen3Next) -> FirstLayer:
    """As an EAGLE head."""
    tensors = open_tensors(directory, "cpu", target.hidden_dtype)
    return FirstLayer(target.built_in_draft(read_fields(directory), tensors, 1, chain=True))


def test_mtp_equals_the_reference(directory: Path, ids: torch.Tensor) -> None:
    target = load_target(directory, "cpu", torch.float64)
    head = mtp_of(directory, target)
    hidden = torch.randn(TOKENS, target.width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = load_reference(directory).mtp_layers(directory)[0].forward(ids.tolist(), hidden)
    states, handed = head.forward(ids, hidden, where([1] * TOKENS, list(range(TOKENS))), NaiveCache())
    assert relative(handed, expected.g) < BOUND
    assert relative(head.logits(states), expected.logits) < BOUND


def test_mtp_is_a_layer_of_transformers_between_its_norms(directory: Path, ids: torch.Tensor) -> None:
    """The layer and the norms of a transformers model of one full attention layer, with the MTP's weights in it."""
    dtype = torch.float64
    target = load_target(directory, "cpu", dtype)
    head = mtp_of(directory, target)
    tensors = open_tensors(directory, "cpu", dtype)
    hidden = torch.randn(TOKENS, target.width, dtype=dtype, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = transformers_mtp(directory, ids, hidden, {name: tensors[name] for name in tensors})
    cache = NaiveCache()
    got = torch.cat(
        [
            head.forward(ids[part], hidden[part], where([4] * len(ids[part]), list(range(TOKENS))[part]), cache)[0]
            for part in (slice(0, 30), slice(30, 31), slice(31, TOKENS))
        ]
    )
    assert relative(got, expected) < BOUND
    assert torch.equal(head.logits(got), F.linear(got, tensors["lm_head.weight"]))
    assert head.cache_shape.layers == 1


def transformers_mtp(
    directory: Path, ids: torch.Tensor, hidden: torch.Tensor, tensors: dict[str, torch.Tensor]
) -> torch.Tensor:
    model = load_witness(directory)
    text = model.model
    full = text.config.layer_types.index("full_attention")
    layer = text.layers[full]
    load_layer(layer, {name: value for name, value in tensors.items() if name.startswith("mtp.layers.0.")})
    text.layers = torch.nn.ModuleList([layer])
    text.config.num_hidden_layers, text.config.layer_types = 1, ["full_attention"]
    layer.self_attn.layer_idx = 0
    text.norm.weight.data.copy_(tensors["mtp.norm.weight"])

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + text.config.rms_norm_eps)
        return x * scale * (1 + tensors[f"mtp.pre_fc_norm_{name}.weight"])

    embedded = text.embed_tokens(ids)
    x = torch.cat((normed(embedded, "embedding"), normed(hidden, "hidden")), 1) @ tensors["mtp.fc.weight"].T
    with Widen():
        return text(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]


def load_layer(layer: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Copy tensors of a checkpoint, experts one by one, into a module with its experts in one tensor."""
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            prefix = f"mtp.layers.0.{name}"
            if name.endswith("experts.gate_up_proj"):
                parts = [
                    torch.cat(
                        [tensors[prefix.replace("gate_up_proj", f"{i}.{part}_proj.weight")] for part in ("gate", "up")]
                    )
                    for i in range(parameter.shape[0])
                ]
                parameter.copy_(torch.stack(parts))
            elif name.endswith("experts.down_proj"):
                parts = [tensors[prefix.replace("down_proj", f"{i}.down_proj.weight")] for i in range(len(parameter))]
                parameter.copy_(torch.stack(parts))
            else:
                parameter.copy_(tensors[prefix])
