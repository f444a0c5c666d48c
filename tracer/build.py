"""Write a tracer checkpoint: an ordinary Hugging Face directory, with its program beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftproof.properties.lib.errors import require_input
from draftproof.tracer.architectures import BACK_ENDS, BackEnd
from draftproof.tracer.generate import generated
from draftproof.tracer.kernel import ROUNDING, DistanceKernel, kernel
from draftproof.tracer.margins import Margin, margins
from draftproof.tracer.matrices import head_matrix, joined, of_features, signs, tied_weights
from draftproof.tracer.parts import EXPERT_COUNT, NORM_EPSILON, Sizes, Tensors, dense, joint_attention, norms, under
from draftproof.tracer.program import (
    BOS,
    BYTES,
    END,
    FIRST,
    VOCABULARY,
    BitHead,
    BitLayer,
    Program,
    Table,
    write_program,
)
from draftproof.tracer.tokenizer import tokenizer_files

_NEAREST = 64
"""The distances that every layer has a head for."""
_OF_EAGLE3 = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


class Built(NamedTuple):
    """What was written, and its margins."""

    program: Program
    margins: tuple[Margin, ...]


@dataclass(frozen=True)
class _Form:
    """What the weights of a checkpoint depend on beside its program."""

    back: BackEnd
    sizes: Sizes
    length: int
    dtype: str

    def of(self, architecture: str) -> _Form:
        """Return that of a dense architecture."""
        back = BACK_ENDS[architecture]
        return replace(self, back=back, sizes=replace(back.sizes, width=self.sizes.width, units=self.sizes.units))

    @property
    def scores(self) -> DistanceKernel:
        """The kernel of its attention."""
        rotary, whole = self.sizes.rotary, self.sizes.head_dim
        return kernel(rotary, self.sizes.theta, self.length, self.dtype, spare=rotary == whole)

    def layer(self, layer: BitLayer, number: int, first: int) -> Tensors:
        """Return the tensors of a layer."""
        return self.back.layer(layer, number, first, self.sizes, self.scores)


def build(
    out: Path,
    architecture: str,
    draft: str | None = None,
    *,
    seed: int = 0,
    length: int = 4096,
    dtype: str = "bfloat16",
    window: int = 0,
    tied: bool = False,
) -> Built:
    """Write the tracer checkpoint of a seed; a draft that is a checkpoint of its own is in a folder of its name.

    With a window every other layer sees so many tokens; with tied embeddings there is no lm_head.

    Raises InputError where its margins are too small, and OSError.
    """
    require_input(architecture in BACK_ENDS, "architecture", architecture, f"one of {', '.join(BACK_ENDS)}")
    back = BACK_ENDS[architecture]
    require_input(draft is None or draft in back.drafts, "draft", draft, f"one of {', '.join(back.drafts)}")
    require_input(dtype in ROUNDING, "dtype", dtype, f"one of {', '.join(ROUNDING)}")
    require_input(not out.exists() or (out.is_dir() and not any(out.iterdir())), "directory", str(out), "an empty one")
    require_input(not window or back.windows, "window", window, "0 for an architecture without windows")
    require_input(not window or window > _NEAREST, "window", window, f"0, or more than {_NEAREST}")
    require_input(
        not tied or draft in back.beside_tied, "tied embeddings", architecture, "llama or qwen3, without a head"
    )
    program = generated(seed, length, back.mixers, draft, window=window, tied=tied)
    form = _Form(back, _sizes(program, back.sizes), length, dtype)
    drafting = form if draft in (None, "mtp") else form.of(back.eagle if draft == "eagle" else "llama")
    found = [margins(program, one.scores, length, dtype) for one in (form, drafting)]
    own = _mtp(form, program.head, len(program.layers)) if program.head and draft == "mtp" else {}
    _write_model(out, form, program, own)
    if program.head and draft == "eagle":
        _write_eagle(out / draft, drafting, program.head)
    if program.head and draft == "eagle3":
        _write_eagle3(out / draft, drafting, program, program.head)
    if program.small and draft:
        _write_model(out / draft, drafting, program.small, {})
    return Built(program, min(found))


def _write_model(out: Path, form: _Form, program: Program, more: Tensors) -> None:
    """Write a model with whatever servers look for, and its program."""
    width = program.width
    embedding = np.ones((VOCABULARY, width))
    embedding[:, program.embedded] = signs(np.array(program.codes))
    tensors = {
        "model.embed_tokens.weight": embedding,
        **norms(("model.norm",), width, form.back.less),
        **more,
    }
    fields: dict[str, Any] = {"tie_word_embeddings": program.is_tied}
    if program.is_tied:
        tensors["model.norm.weight"] *= tied_weights(program.outputs, program.embedded, width)
    else:
        tensors["lm_head.weight"] = head_matrix(program.outputs, VOCABULARY, width)
    if program.window:
        kinds = ("sliding_attention", "full_attention")
        fields |= {"use_sliding_window": True, "sliding_window": program.window}
        fields["layer_types"] = [kinds[i % 2] for i in range(len(program.layers))]
    for number, layer in enumerate(program.layers):
        tensors |= under(f"model.layers.{number}.", form.layer(layer, number, FIRST))
    _write_tensors(out, form, len(program.layers), tensors, fields)
    for name, value in tokenizer_files().items():
        _write_json(out / name, value)
    _write_json(out / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": END, "do_sample": False})
    write_program(program, out)


def _write_eagle(out: Path, form: _Form, head: BitHead) -> None:
    """Write an EAGLE head as SafeAILab's: one layer without an input norm, in the architecture that goes with it."""
    layer = form.layer(head.layer, 0, head.first)
    del layer["input_layernorm.weight"]
    _write_tensors(out, form, 1, {"fc.weight": joined(head, form.sizes.width), **under("layers.0.", layer)})


def _write_eagle3(out: Path, form: _Form, program: Program, head: BitHead) -> None:
    """Write an EAGLE-3 head as SafeAILab's, which numbers the bytes in another order."""
    # One head more is needed; servers want a number of them that divides the width.
    one = replace(form, sizes=replace(form.sizes, heads=2 * form.sizes.heads))
    width, shift = program.width, BYTES // 3
    order = (np.arange(BYTES) + shift) % BYTES
    writers = {table.target: number for number, layer in enumerate(program.layers) for table in layer.tables}
    tensors = {
        "fc.weight": of_features(head, writers, width),
        **norms(("norm", *(f"midlayer.{name}" for name in _OF_EAGLE3)), width),
        **under("midlayer.self_attn.", joint_attention(head, one.sizes, one.scores)),
        **under("midlayer.mlp.", dense(head.layer, one.sizes)),
        "lm_head.weight": head_matrix(program.outputs, VOCABULARY, width)[order],
        "d2t": order - np.arange(BYTES),
        "t2d": np.arange(VOCABULARY) < BYTES,
    }
    # vLLM reads the first list, which counts what enters a layer; others that of eagle_config, which counts outputs.
    name = "eagle_aux_hidden_state_layer_ids"
    fed = {name: [0, 1, 2], "use_aux_hidden_state": True}
    more = {"draft_vocab_size": BYTES, "target_hidden_size": width, name: [1, 2, 3], "eagle_config": fed}
    _write_tensors(out, one, 1, tensors, {"architectures": ["LlamaForCausalLMEagle3"], **more})


def _mtp(form: _Form, head: BitHead, number: int) -> Tensors:
    """Return the MTP layer, whose number follows those of the target's layers."""
    assert form.back.mtp
    prefix, (*of_norms, projection), of_layer = form.back.mtp
    tensors = {
        **norms(of_norms, form.sizes.width, form.back.less),
        f"{projection}.weight": joined(head, form.sizes.width),
        **under(of_layer, form.layer(head.layer, number, head.first)),
    }
    return under(prefix.format(number), tensors)


def _sizes(program: Program, sizes: Sizes) -> Sizes:
    """Return the sizes with units that are enough for every layer."""
    layers = (*program.layers, *(program.small or program).layers, *([program.head.layer] if program.head else []))

    def most(is_counted: Callable[[Table], bool], share: int = 1) -> int:
        lines = (
            sum(len(table.values) << table.firm for table in layer.tables if is_counted(table)) for layer in layers
        )
        return -(-max(lines) // (64 * share)) * 64

    return replace(
        sizes,
        width=program.width,
        units=most(lambda table: True),
        of_expert=most(lambda table: table.routed, share=EXPERT_COUNT),
        of_shared=most(lambda table: not table.routed),
    )


def _write_tensors(
    out: Path, form: _Form, layers: int, tensors: Mapping[str, NDArray[Any]], more: Mapping[str, Any] | None = None
) -> None:
    """Write config.json and the tensors, in a precision those that are no numbers of tokens."""
    import torch
    from safetensors.torch import save_file

    fields = {
        **form.back.fields(form.sizes, layers),
        "vocab_size": VOCABULARY,
        "max_position_embeddings": form.length,
        "hidden_act": "silu",
        "rms_norm_eps": NORM_EPSILON,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": END,
        "torch_dtype": form.dtype,
        "dtype": form.dtype,
        **(more or {}),
    }
    out.mkdir(parents=True, exist_ok=True)
    stored = {name: torch.from_numpy(tensor).contiguous() for name, tensor in tensors.items()}
    dtype = getattr(torch, form.dtype)
    stored = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in stored.items()}
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    _write_json(out / "config.json", fields)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
