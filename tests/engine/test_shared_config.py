"""One configuration object for target and draft: what it may hold, and that nobody changes what another sees."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from transformers import Qwen3_5Config, Qwen3_5TextConfig, Qwen3NextConfig

from draftproof.engine.models.checkpoint import open_tensors
from draftproof.engine.models.config_fields import draft_fields, fingerprint, target_fields
from draftproof.engine.models.config_fields import read_fields as copy_fields
from draftproof.engine.models.eagle_head import EagleHead
from draftproof.engine.models.llama import Llama
from draftproof.engine.models.mtp_chain import FirstLayer
from draftproof.engine.models.qwen3_next import Qwen3Next
from draftproof.engine.models.registry import ENGINE_MODELS, build_target
from draftproof.engine.subject.checkpoints import build_pair, load
from draftproof.properties.formats.checkpoint_config import CONFIGS, parse_config, read_fields
from draftproof.properties.formats.checkpoint_config.base import TargetConfig
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint
from draftproof.reference.models.registry import REFERENCE_MODELS
from tests.checkpoints import QWEN3_5, QWEN3_NEXT, tiny_head, tiny_qwen3, tiny_qwen3_5, tiny_qwen3_next

CPU = torch.device("cpu")
LISTED = {"hybrid": tiny_qwen3_next, "without experts": tiny_qwen3_5, "dense": tiny_qwen3}
DRAFTS = {"seed": CheckpointDraft(seed=3), "built in": CheckpointDraft(built_in=True)}


class Holder:
    """A configuration object that hands out its insides, as a user's own may."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def to_dict(self) -> dict[str, Any]:
        return self.fields


HANDED_IN: dict[str, Callable[[Path], Any]] = {
    "dict": read_fields,
    "own object": lambda path: Holder(read_fields(path)),
    "transformers": lambda path: Qwen3NextConfig.from_pretrained(path),
    "transformers, no architecture": lambda path: Qwen3NextConfig(**QWEN3_NEXT),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3_next(tmp_path_factory.mktemp("next"))


def plain(config: Any) -> dict[str, Any]:
    return copy.deepcopy(config if isinstance(config, dict) else config.to_dict())


def checkpoint(directory: Path) -> Checkpoint:
    return Checkpoint(path=str(directory), vocab=read_fields(directory)["vocab_size"])


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("kind", HANDED_IN)
def test_what_is_handed_in_stays_as_it_is(directory: Path, kind: str, draft: str) -> None:
    config = HANDED_IN[kind](directory)
    before = plain(config)
    pair = build_pair(config, checkpoint(directory), DRAFTS[draft], CPU)
    assert plain(config) == before
    assert pair.config is config
    assert pair.seen == (fingerprint(config),) * 3
    assert pair.seen[0][1:] == (5, 1, 1, 0, 1, 0)
    assert type(pair.draft.model) is (FirstLayer if draft == "built in" else EagleHead)
    assert pair.draft.model.cache_shape.layers == 1


def test_order_of_building_does_not_matter(directory: Path) -> None:
    config, tensors = read_fields(directory), open_tensors(directory, "cpu", torch.float32)
    first = build_target(config, tensors)
    first.built_in_draft(config, tensors, None, chain=True)
    second = build_target(config, tensors)
    assert second.config == first.config
    assert second.layer_types == ("linear_attention",) * 2 + ("full_attention", "linear_attention", "full_attention")


def test_a_later_change_of_what_was_handed_in_reaches_no_model(directory: Path) -> None:
    config, tensors = read_fields(directory), open_tensors(directory, "cpu", torch.float32)
    target = build_target(config, tensors)
    head = target.built_in_draft(config, tensors, None, chain=True)
    seen, types = fingerprint(config), target.layer_types
    frequencies = head.layers[0].layer.mixer.inv_freq.clone()
    config["layer_types"][:] = ["full_attention"] * 5
    config["rope_parameters"]["rope_theta"] = 7.0
    assert fingerprint(config) != seen
    assert target.layer_types == types
    assert target.config.rope_parameters.rope_theta == 10000.0
    assert torch.equal(head.layers[0].layer.mixer.inv_freq, frequencies)


@pytest.mark.parametrize("view", [copy_fields, target_fields, draft_fields])
@pytest.mark.parametrize("kind", HANDED_IN)
def test_views_share_nothing_with_it(directory: Path, kind: str, view: Callable[[Any], dict[str, Any]]) -> None:
    config = HANDED_IN[kind](directory)
    before = plain(config)
    fields = view(config)
    fields["layer_types"].append("linear_attention")
    fields["rope_parameters"].clear()
    fields["hidden_size"] = 1
    assert plain(config) == before


def test_views_of_a_multimodal_configuration() -> None:
    nested = Qwen3_5Config(text_config=QWEN3_5, vision_config={}, tie_word_embeddings=True)
    before = plain(nested)
    fields = target_fields(nested)
    fields["layer_types"].clear()
    fields["rope_parameters"].clear()
    assert plain(nested) == before
    flat = parse_config(target_fields(Qwen3_5TextConfig(**QWEN3_5)))
    assert parse_config(target_fields(nested)) == replace(flat, tie_word_embeddings=True)
    assert fingerprint(nested)[1:] == (4, 1, 1, 0, 1)
    assert draft_fields(nested)["layer_types"] == ["full_attention"]


def test_a_fingerprint_sees_every_field(directory: Path) -> None:
    config = read_fields(directory)
    seen = fingerprint(config)
    assert fingerprint(dict(reversed(config.items()))) == seen
    for name in config:
        assert name in ("layer_types", "num_hidden_layers") or fingerprint({**config, name: "other"}) != seen, name
    assert fingerprint({**config, "layer_types": ["full_attention"] * 5})[1:] == (5, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("config", [None, 7, "qwen3_next"])
def test_no_configuration_at_all(config: object) -> None:
    with pytest.raises(CheckpointError, match=r"invalid configuration \w+: expected a mapping"):
        copy_fields(config)


@pytest.mark.parametrize("name", LISTED)
def test_loading_what_a_scenario_names(tmp_path: Path, name: str) -> None:
    directory = LISTED[name](tmp_path / "target")
    model = checkpoint(directory)
    tiny_head(tmp_path / "head", directory)
    drafts = [CheckpointDraft(seed=1), CheckpointDraft(path=str(tmp_path / "head"))]
    drafts += [] if name == "dense" else [CheckpointDraft(built_in=True)]
    for draft in drafts:
        target, built, config, seen = load(model, draft, CPU)
        assert type(target) is (Llama if name == "dense" else Qwen3Next)
        assert len(set(seen)) == 1
        assert fingerprint(config) == seen[0]
        assert seen[0][2:] == tuple(int(kind == "linear_attention") for kind in target.layer_types)
        assert (target.state_shape is None) == (name == "dense")
        assert built.kind == "eagle"
        assert built.model.cache_shape.layers == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mtp_num_hidden_layers": 2}, "invalid mtp_num_hidden_layers 2 .*expected 1"),
        ({"mtp_use_dedicated_embeddings": True}, "invalid mtp_use_dedicated_embeddings True .*expected false"),
    ],
)
def test_bad_field_of_the_built_in_draft(directory: Path, fields: dict[str, Any], message: str) -> None:
    config = {**read_fields(directory), **fields}
    build_pair(config, checkpoint(directory), CheckpointDraft(), CPU)
    with pytest.raises(CheckpointError, match=message):
        build_pair(config, checkpoint(directory), CheckpointDraft(built_in=True), CPU)


def test_both_sides_know_every_architecture() -> None:
    targets = {name for name, config in CONFIGS.items() if issubclass(config, TargetConfig)}
    assert set(ENGINE_MODELS) == targets
    # Of a multimodal checkpoint the engine reads the text part; the reference reads checkpoints of text only.
    assert set(REFERENCE_MODELS) == {name for name in targets if not name.endswith("ForConditionalGeneration")}


def test_an_architecture_that_the_engine_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ENGINE_MODELS, "Qwen3ForCausalLM")
    with pytest.raises(
        CheckpointError, match=r"architectures \['Qwen3ForCausalLM'\] .*expected one of LlamaForCausalLM"
    ):
        build_target(read_fields(tiny_qwen3(tmp_path)), {})
