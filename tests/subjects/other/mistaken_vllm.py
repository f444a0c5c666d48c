"""vLLM with one mistake each, patched in when its classes are imported: what must be found in a released engine.

PYTHONPATH=tests/subjects/other draftproof check --model DIR --draft eagle --draft-model HEAD
    --subject mistaken_vllm:Mistaken --python ENV/bin/python --set mistake=ids-not-shifted
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

from draftproof.subjects.vllm import VllmSubject

MISTAKES: dict[str, Callable[[Any], None]] = {}
"""name -> what patches the class of vLLM's proposers, or whatever else it needs"""


class Mistaken(VllmSubject):
    """vLLM with the mistake of a name; "none" is the released engine."""

    def __init__(self, mistake: str, junk: Literal["yes", "no"] = "yes") -> None:
        super().__init__(junk=junk)
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


@_mistake("draft-positions-one-ahead")
def _(proposer: Any) -> None:
    """As sgl-project/sglang#25015: positions of draft steps alone, slots are right."""

    def ahead(original: Any, self: Any, *given: Any) -> Any:
        right = original(self, *given).clone()
        self.positions[: len(right)] = right + 1
        return right

    _around(proposer, "_update_positions_dependent_metadata", ahead)


@_mistake("last-draft-for-bonus")
def _(proposer: Any) -> None:
    """As vllm-project/vllm#9730: after a full accept."""

    def last(original: Any, self: Any, sampled: Any, *given: Any) -> Any:
        tokens, counts = original(self, sampled, *given)
        if sampled.shape[1] == 1:
            return tokens, counts
        full = (counts == sampled.shape[1]) & (counts > 1)
        return sampled[:, -2].to(tokens.dtype).where(full, tokens), counts

    _around(proposer, "prepare_next_token_ids_padded", last)


@_mistake("entry-missing-after-full-accept")
def _(proposer: Any) -> None:
    rows: list[int] = []

    def noted(original: Any, self: Any, **named: Any) -> Any:
        rejected, metadata = named["num_rejected_tokens_gpu"], named["common_attn_metadata"]
        if rejected is not None:
            starts = metadata.query_start_loc_cpu.tolist()
            verified = [after - before > 1 for before, after in pairwise(starts)]
            prompts = named["target_positions"][metadata.query_start_loc_cpu[:-1].long()] == 0
            full = [one == 0 for one in rejected.tolist()]
            ends = named["token_indices_to_sample"].tolist()
            where = zip(ends, full, verified, prompts.tolist(), strict=True)
            rows[:] = [end for end, all_right, drafted, begins in where if all_right and drafted and not begins]
        return original(self, **named)

    def without(original: Any, self: Any, count: int, slots: Any = None) -> Any:
        if slots is not None and rows:
            slots = slots.clone()
            slots[rows] = -1
            rows.clear()
        return original(self, count, slots)

    _around(proposer, "propose", noted)
    _around(proposer, "_get_slot_mapping", without)


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


@_mistake("first-step-state-for-all")
def _(proposer: Any) -> None:
    from vllm.model_executor.models.llama_eagle import LlamaModel

    passes = [0]

    def begins(original: Any, self: Any, **named: Any) -> Any:
        passes[0] = 0
        return original(self, **named)

    def stale(original: Any, self: Any, input_ids: Any, positions: Any, hidden_states: Any) -> Any:
        passes[0] += 1
        made, handed = original(self, input_ids, positions, hidden_states)
        return made, handed if passes[0] == 1 else hidden_states

    _around(proposer, "propose", begins)
    _around(LlamaModel, "forward", stale)


@_mistake("hidden-first-in-fc")
def _(_proposer: Any) -> None:
    from vllm.model_executor.models.llama_eagle import LlamaModel

    def swapped(original: Any, self: Any, input_ids: Any, positions: Any, hidden_states: Any) -> Any:
        fc, half = self.fc, hidden_states.shape[-1]
        self.__dict__["fc"] = lambda x: fc(x.roll(half, -1))
        try:
            return original(self, input_ids, positions, hidden_states)
        finally:
            del self.__dict__["fc"]

    _around(LlamaModel, "forward", swapped)


@_mistake("hidden-before-the-norm")
def _(proposer: Any) -> None:
    from vllm.model_executor.models.llama import LlamaModel

    before: list[Any] = []

    def watched(original: Any, self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        self.norm.register_forward_pre_hook(lambda _, x: before.__setitem__(slice(None), [x[0] + x[1]]))

    def early(original: Any, self: Any, **named: Any) -> Any:
        rows = len(named["target_hidden_states"])
        return original(self, **named | {"target_hidden_states": before[0][:rows]})

    _around(LlamaModel, "__init__", watched)
    _around(proposer, "propose", early)


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


@_mistake("last-draft-never-accepted")
def _(_proposer: Any) -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    def strict(original: Any, self: Any, logits: Any, metadata: Any) -> Any:
        made = original(self, logits, metadata)
        if metadata is not None:
            for row, count in enumerate(metadata.num_draft_tokens):
                if count and made.sampled_token_ids[row, count] >= 0:
                    made.sampled_token_ids[row, count] = -1
        return made

    _around(GPUModelRunner, "_sample", strict)
