"""Every draft that goes with a checkpoint of any architecture, and what the files may hold."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.engine.models.base import NgramSettings
from draftproof.engine.models.config_fields import fingerprint
from draftproof.engine.models.deepseek_v3 import DeepseekV3
from draftproof.engine.models.dflash import DFlashModel
from draftproof.engine.models.eagle_head import EagleHead
from draftproof.engine.models.glm4_moe import Glm4Moe
from draftproof.engine.models.layers import LayerSizes
from draftproof.engine.models.llama import Llama
from draftproof.engine.models.mtp_chain import FirstLayer, MtpChain
from draftproof.engine.models.qwen3_next import Qwen3Next
from draftproof.engine.models.registry import load_target
from draftproof.engine.subject.checkpoints import load
from draftproof.properties.formats.checkpoint_config import parse_config, read_fields
from draftproof.properties.formats.checkpoint_config.sparse import DeepseekV3Config
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft, Ngram
from draftproof.properties.values.scenario import Checkpoint
from draftproof.properties.weights.eagle import HeadSizes, random_head
from tests.checkpoints import (
    add_tensors,
    tiny_deepseek_v3,
    tiny_dflash,
    tiny_glm4_moe,
    tiny_head,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_next,
)

CPU = torch.device("cpu")
TARGETS: dict[str, Callable[..., Path]] = {
    "glm": tiny_glm4_moe,
    "deepseek": tiny_deepseek_v3,
    "dense": tiny_qwen3,
    "hybrid": tiny_qwen3_next,
}
SPARSE = ("glm", "deepseek")
TYPES: dict[str, type] = {"glm": Glm4Moe, "deepseek": DeepseekV3, "dense": Llama, "hybrid": Qwen3Next}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("targets")
    return {name: writer(base / name) for name, writer in TARGETS.items()}


def checkpoint(directory: Path) -> Checkpoint:
    return Checkpoint(path=str(directory), vocab=53)


@pytest.mark.parametrize(
    ("name", "tensor", "shape"),
    [
        ("glm", "model.layers.1.mlp.gate.e_score_correction_bias", r"\[12\]"),
        ("glm", "model.layers.2.mlp.shared_experts.up_proj.weight", r"\[28, 30\]"),
        ("glm", "model.layers.0.self_attn.q_norm.weight", r"\[16\]"),
        ("deepseek", "model.layers.1.self_attn.q_b_proj.weight", r"\[120, 20\]"),
        ("deepseek", "model.layers.1.self_attn.kv_a_proj_with_mqa.weight", r"\[26, 30\]"),
        ("deepseek", "model.layers.1.self_attn.kv_b_proj.weight", r"\[132, 18\]"),
        ("deepseek", "model.layers.2.mlp.experts.11.down_proj.weight", r"\[30, 14\]"),
    ],
)
def test_missing_tensor(tmp_path: Path, name: str, tensor: str, shape: str) -> None:
    path = TARGETS[name](tmp_path)
    tensors = load_file(path / "model.safetensors")
    del tensors[tensor]
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"tensor {tensor} is missing .*{shape}"):
        load_target(path, "cpu", torch.float32)


@pytest.mark.parametrize("name", SPARSE)
def test_tensors_that_nobody_reads(tmp_path: Path, name: str) -> None:
    """MTP layers are known parts, but only as many as the configuration has."""
    path = TARGETS[name](tmp_path)
    load_target(path, "cpu", torch.float32)
    add_tensors(path, {"model.layers.4.enorm.weight": torch.ones(30)})
    with pytest.raises(CheckpointError, match=r"model\.layers\.4\.enorm\.weight .* unknown to the architecture"):
        load(checkpoint(path), CheckpointDraft(), CPU)


@pytest.mark.parametrize("name", SPARSE)
def test_an_eagle_head_of_the_targets_sizes(directories: dict[str, Path], name: str) -> None:
    path = directories[name]
    target = load_target(path, "cpu", torch.float32)
    sizes = LayerSizes.of(target.eagle_config(target.config))
    kv_heads, head_dim, eps = (2, 16, 1e-5) if name == "glm" else (6, 10, 1e-4)
    assert sizes == LayerSizes(30, 44, 6, kv_heads, head_dim, eps, qk_norm=True)
    head = load(checkpoint(path), CheckpointDraft(seed=7), CPU).draft.model
    assert isinstance(head, EagleHead)
    arrays = random_head(HeadSizes(30, 44, 6, kv_heads, head_dim, qk_norm=True), 7)
    assert torch.equal(head.fc, torch.from_numpy(arrays["fc.weight"]))
    assert torch.equal(head.attention.k_norm, torch.from_numpy(arrays["layers.0.self_attn.k_norm.weight"]))


def test_an_eagle_head_may_have_an_embedding_of_its_own(tmp_path: Path) -> None:
    target = tiny_llama(tmp_path / "target")
    path = tiny_head(tmp_path / "head", target)
    own = torch.randn(load_target(target, "cpu", torch.float32).embedding.shape)
    add_tensors(path, {"embed_tokens.weight": own})
    head = load(checkpoint(target), CheckpointDraft(path=str(path)), CPU).draft.model
    assert isinstance(head, EagleHead)
    assert torch.equal(head.embedding, own)


def test_odd_values_have_no_eagle_head(directories: dict[str, Path]) -> None:
    config = {**read_fields(directories["deepseek"]), "v_head_dim": 9}
    with pytest.raises(CheckpointError, match=r"invalid v_head_dim 9 .*an even number for an EAGLE head"):
        DeepseekV3.eagle_config(parse_config(config, DeepseekV3Config))


def drafts_of(name: str, base: Path) -> dict[CheckpointDraft | Ngram, tuple[str, type, int]]:
    """Every draft of a target: its algorithm, the type of its model, and the layers of that."""
    small = tiny_llama(base / "small", num_hidden_layers=2)
    found: dict[CheckpointDraft | Ngram, tuple[str, type, int]] = {
        CheckpointDraft(seed=1): ("eagle", EagleHead, 1),
        Ngram(max_n=3, min_n=2): ("ngram", NgramSettings, 0),
        CheckpointDraft(algorithm="dflash", path=str(tiny_dflash(base / "dflash"))): ("dflash", DFlashModel, 2),
        CheckpointDraft(algorithm="standalone", path=str(small)): ("standalone", Llama, 2),
    }
    if name != "dense":
        found[CheckpointDraft(built_in=True)] = ("eagle", FirstLayer, 1)
        found[CheckpointDraft(algorithm="mtp", built_in=True)] = ("mtp", MtpChain, 1 if name == "hybrid" else 3)
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_every_draft_of_a_target(tmp_path: Path, name: str) -> None:
    writer = TARGETS[name]
    path = writer(tmp_path / "target", mtp=3) if name in SPARSE else writer(tmp_path / "target")
    config = read_fields(path)
    for draft, (kind, model, layers) in drafts_of(name, tmp_path).items():
        pair = load(checkpoint(path), draft, CPU)
        assert type(pair.target) is TYPES[name]
        assert pair.draft.kind == kind
        assert type(pair.draft.model) is model
        if isinstance(pair.draft.model, NgramSettings):
            assert pair.draft.model == NgramSettings(max_n=3, min_n=2)
        else:
            assert pair.draft.model.cache_shape.layers == layers
        assert pair.seen == (fingerprint(config),) * 3


@pytest.mark.parametrize("name", [*SPARSE, "dense"])
def test_any_target_without_states_is_a_standalone_draft(directories: dict[str, Path], name: str) -> None:
    draft = CheckpointDraft(algorithm="standalone", path=str(directories[name]))
    pair = load(checkpoint(directories["hybrid"]), draft, CPU)
    assert type(pair.draft.model) is TYPES[name]
    assert pair.draft.model.hidden_dtype == pair.target.hidden_dtype


@pytest.mark.parametrize("name", TARGETS)
def test_an_eagle_head_from_a_directory(directories: dict[str, Path], tmp_path: Path, name: str) -> None:
    """That of random_head, written as a checkpoint, is the one made from the same seed."""
    path = tiny_head(tmp_path, directories[name], seed=2)
    drafts = [CheckpointDraft(path=str(path)), CheckpointDraft(seed=2)]
    read, made = (load(checkpoint(directories[name]), draft, CPU).draft.model for draft in drafts)
    assert read.cache_shape == made.cache_shape
    assert all(torch.equal(one, other) for one, other in zip(read.weights(), made.weights(), strict=True))


@pytest.mark.parametrize(
    ("target", "draft", "message"),
    [
        ("dense", CheckpointDraft(built_in=True), "built_in True: expected False, Qwen3ForCausalLM has no MTP layers"),
        ("dense", CheckpointDraft(algorithm="mtp", built_in=True), "built_in True: expected False"),
        ("glm", CheckpointDraft(algorithm="mtp", path="x"), "invalid path 'x' of an mtp draft: expected none"),
        (
            "glm",
            CheckpointDraft(algorithm="dflash"),
            "path of a dflash draft, not given: expected a checkpoint",
        ),
        ("glm", CheckpointDraft(algorithm="standalone"), "path of a standalone draft, not given"),
        ("glm", CheckpointDraft(algorithm="standalone", built_in=True), "standalone draft, built into the target"),
        ("glm", CheckpointDraft(algorithm="dflash", path="/nowhere"), "/nowhere/config.json does not exist"),
    ],
)
def test_a_draft_that_cannot_be(
    directories: dict[str, Path], target: str, draft: CheckpointDraft, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(checkpoint(directories[target]), draft, CPU)


def test_a_standalone_draft_that_does_not_fit(directories: dict[str, Path], tmp_path: Path) -> None:
    hybrid = CheckpointDraft(algorithm="standalone", path=str(directories["hybrid"]))
    with pytest.raises(CheckpointError, match=r"invalid standalone draft .*: expected no layers of linear_attention"):
        load(checkpoint(directories["glm"]), hybrid, CPU)
    other = CheckpointDraft(algorithm="standalone", path=str(tiny_llama(tmp_path, vocab_size=54)))
    with pytest.raises(CheckpointError, match="invalid vocab_size 54 of the draft: expected 53"):
        load(checkpoint(directories["glm"]), other, CPU)


def test_no_mtp_layers_in_the_checkpoint(tmp_path: Path) -> None:
    path = tiny_glm4_moe(tmp_path, mtp=0)
    for draft in (CheckpointDraft(built_in=True), CheckpointDraft(algorithm="mtp", built_in=True)):
        with pytest.raises(CheckpointError, match=r"invalid num_nextn_predict_layers 0 .*for the built-in draft"):
            load(checkpoint(path), draft, CPU)
