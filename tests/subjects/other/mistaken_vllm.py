"""vLLM with one mistake each, patched in when its classes are imported: what must be found in a released engine.

PYTHONPATH=tests/subjects/other draftproof check --model DIR --draft eagle --draft-model HEAD
    --subject mistaken_vllm:Mistaken --python ENV/bin/python --set mistake=ids-not-shifted
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof.subjects.vllm import VllmSubject

MISTAKES: dict[str, Callable[[Any], None]] = {}
"""name -> what patches the class of vLLM's proposers, or whatever else it needs"""


class Mistaken(VllmSubject):
    """vLLM with the mistake of a name; "none" is the released engine."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        if mistake != "none":
            from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

            MISTAKES[mistake](SpecDecodeBaseProposer)


def _mistake(name: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    def register(patch: Callable[[Any], None]) -> Callable[[Any], None]:
        MISTAKES[name] = patch
        return patch

    return register


def _around(kind: Any, name: str, new: Callable[..., Any]) -> None:
    """Have `new(original, self, ...)` called in the place of a method."""
    original = getattr(kind, name)
    setattr(kind, name, lambda self, *given, **named: new(original, self, *given, **named))


@_mistake("extend-positions-one-ahead")
def _(proposer: Any) -> None:
    _around(proposer, "_set_positions", lambda original, self, count, positions: original(self, count, positions + 1))


@_mistake("draft-positions-stand-still")
def _(proposer: Any) -> None:
    def stands(original: Any, self: Any, positions: Any, *given: Any) -> Any:
        before = positions.clone()
        original(self, positions, *given)
        self.positions[: len(before)] = before
        return self.positions[: len(before)]

    _around(proposer, "_update_positions_dependent_metadata", stands)


@_mistake("ids-not-shifted")
def _(proposer: Any) -> None:
    def unshifted(original: Any, self: Any, **named: Any) -> Any:
        made = original(self, **named)
        self.input_ids[: made[0]] = named["target_token_ids"]
        return made

    _around(proposer, "set_inputs_first_pass", unshifted)


def _rolled(rows: int) -> Callable[[Any], None]:
    def patch(proposer: Any) -> None:
        def rolled(original: Any, self: Any, **named: Any) -> Any:
            return original(self, **named | {"target_hidden_states": named["target_hidden_states"].roll(rows, 0)})

        _around(proposer, "propose", rolled)

    return patch


MISTAKES["hidden-row-before"] = _rolled(1)
MISTAKES["hidden-row-after"] = _rolled(-1)


@_mistake("first-token-for-bonus")
def _(proposer: Any) -> None:
    def first(original: Any, self: Any, sampled: Any, *given: Any) -> Any:
        tokens, counts = original(self, sampled, *given)
        return sampled[:, 0].to(tokens.dtype).where(counts > 0, tokens), counts

    _around(proposer, "prepare_next_token_ids_padded", first)


@_mistake("last-entry-missing")
def _(proposer: Any) -> None:
    def without(original: Any, self: Any, count: int, slots: Any = None) -> Any:
        if slots is not None:
            slots = slots.clone()
            slots[-1] = -1
        return original(self, count, slots)

    _around(proposer, "_get_slot_mapping", without)


@_mistake("entries-of-rejected-seen")
def _(proposer: Any) -> None:
    def longer(original: Any, self: Any, **named: Any) -> Any:
        return original(self, **named | {"num_rejected_tokens_gpu": None})

    _around(proposer, "propose", longer)


@_mistake("handed-on-before-the-layer")
def _(_proposer: Any) -> None:
    from vllm.model_executor.models.llama_eagle import LlamaModel

    def early(original: Any, self: Any, input_ids: Any, positions: Any, hidden_states: Any) -> Any:
        return original(self, input_ids, positions, hidden_states)[0], hidden_states

    _around(LlamaModel, "forward", early)


@_mistake("proposals-of-the-round-before")
def _(_proposer: Any) -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    last: dict[str, list[int]] = {}

    def late(original: Any, self: Any) -> Any:
        made = original(self)
        if made is not None:
            now = dict(zip(made.req_ids, made.draft_token_ids, strict=False))
            made = type(made)(made.req_ids, [last.get(name, now[name]) for name in made.req_ids])
            last.update(now)
        return made

    _around(GPUModelRunner, "take_draft_token_ids", late)


@_mistake("first-mismatch-accepted")
def _(_proposer: Any) -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    def generous(original: Any, self: Any, logits: Any, metadata: Any) -> Any:
        made = original(self, logits, metadata)
        if metadata is not None:
            start = 0
            for row, count in enumerate(metadata.num_draft_tokens):
                drafts = metadata.draft_token_ids[start : start + count]
                start += count
                if count and made.sampled_token_ids[row, 0] != drafts[0]:
                    made.sampled_token_ids[row, 0] = drafts[0]
        return made

    _around(GPUModelRunner, "_sample", generous)
