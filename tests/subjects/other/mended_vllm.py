"""vLLM without defects that are known: what fails on the release, and passes so, is explained by them.

PYTHONPATH=tests/subjects/other draftproof check --model DIR --draft eagle --draft-model HEAD
    --subject mended_vllm:Mended --python ENV/bin/python --set without=chunk-end
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof.subjects.vllm import VllmSubject

DEFECTS: dict[str, Callable[[], None]] = {}
"""name -> what patches vLLM's classes; docs/found.md and docs/vllm.md say what each is"""


class Mended(VllmSubject):
    """vLLM without the defects of these names, with plus signs between them."""

    def __init__(self, without: str, rotary: Any = "kernel", page_size: str = "32") -> None:
        super().__init__(rotary=rotary, page_size=page_size)
        for name in without.split("+"):
            DEFECTS[name]()


def _defect(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(mend: Callable[[], None]) -> Callable[[], None]:
        DEFECTS[name] = mend
        return mend

    return register


@_defect("chunk-end")
def _() -> None:
    """The entry at the end of a chunk embeds the next token of the prompt, not its last."""
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    counts: dict[str, int] = {}
    propose, prepare = GPUModelRunner.propose_draft_token_ids, SpecDecodeBaseProposer.prepare_next_token_ids_padded

    def noted(self: Any, scheduled: Any, *given: Any, **named: Any) -> Any:
        counts.clear()
        counts.update(scheduled.num_scheduled_tokens)
        return propose(self, scheduled, *given, **named)

    def next_tokens(self: Any, sampled: Any, requests: Any, batch: Any, discarded: Any) -> Any:
        tokens, valid = prepare(self, sampled, requests, batch, discarded)
        for row, name in enumerate(batch.req_ids[: batch.num_reqs]):
            request = requests[name]
            end = request.num_computed_tokens + counts[name]
            if bool(discarded[row]) and end < request.num_prompt_tokens:
                tokens[row] = request.get_token_id(end)
        return tokens, valid

    GPUModelRunner.propose_draft_token_ids = noted
    SpecDecodeBaseProposer.prepare_next_token_ids_padded = next_tokens


def _unmasked(layer: Any, positions: Any, hidden: Any, embedded: Any) -> Any:
    """Run an MTP layer without masking the embedding of position 0; return its state before the norm."""
    import torch

    both = torch.cat([layer.enorm(embedded), layer.hnorm(hidden)], dim=-1)
    made, residual = layer.mtp_block(positions=positions, hidden_states=layer.eh_proj(both), residual=None)
    return made + residual


@_defect("glm-norm-and-mask")
def _() -> None:
    """GLM-4-MoE hands on the state after the norm, and the embedding of position 0 counts."""
    from vllm.model_executor.models import glm4_moe_mtp

    def forward(self: Any, _ids: Any, positions: Any, hidden: Any, embedded: Any = None, _step: int = 0) -> Any:
        return self.shared_head.norm(_unmasked(self, positions, hidden, embedded))

    glm4_moe_mtp.Glm4MoeMultiTokenPredictorLayer.forward = forward
    glm4_moe_mtp.SharedHead.forward = lambda _self, hidden: hidden


@_defect("deepseek-mask")
def _() -> None:
    """The embedding of position 0 counts."""
    from vllm.model_executor.models import deepseek_mtp

    def forward(self: Any, _ids: Any, positions: Any, hidden: Any, embedded: Any = None, _step: int = 0) -> Any:
        made = _unmasked(self, positions, hidden, embedded)
        return made, self.shared_head(made)

    deepseek_mtp.DeepSeekMultiTokenPredictorLayer.forward = forward
