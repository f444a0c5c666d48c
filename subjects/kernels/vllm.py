"""Bindings of vLLM's kernels: `B` rows of a launch. vLLM's integers are int32, except token ids of the target."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from draftproof.properties.formats.kernel_binding import binding
from draftproof.subjects.kernels.vllm_states import *  # noqa: F403

_SPEC = ("vllm.v1.spec_decode.utils",)
_SAMPLER = ("vllm.v1.sample.rejection_sampler",)


def _packed(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "0")


@binding(
    "sample_indices",
    *_SPEC,
    layout=_packed("indices", "rejected", "cu_drafts", "valid", "cu_tokens"),
    int32=("indices", "rejected", "cu_drafts", "valid", "cu_tokens"),
)
def eagle_prepare_inputs_padded_kernel(
    kernel: Any, indices: Tensor, rejected: Tensor, cu_drafts: Tensor, valid: Tensor, cu_tokens: Tensor
) -> None:
    kernel[(len(valid),)](cu_drafts, valid, cu_tokens, indices, rejected, len(valid))


@binding(
    "next_tokens",
    *_SPEC,
    layout={"sampled": "0|1", **_packed("next", "valid", "discard", "backup")},
    int32=("next", "valid", "sampled", "backup"),
    booleans=("discard",),
)
def eagle_prepare_next_token_padded_kernel(
    kernel: Any, next: Tensor, valid: Tensor, sampled: Tensor, discard: Tensor, backup: Tensor, vocabulary: int
) -> None:
    batch, width = sampled.shape
    kernel[(batch,)](
        sampled, discard, backup, next, valid, vocabulary, width, batch, sampled.stride(0),
        BLOCK_SIZE_TOKENS=1 << max(0, width - 1).bit_length(),
    )  # fmt: skip


@binding(
    "step_slots",
    *_SPEC,
    layout={"page_table": "0|1", **_packed("positions", "slots", "seq_lens", "before")},
    int32=("seq_lens", "page_table"),
)
def eagle_step_slot_mapping_metadata_kernel(
    kernel: Any,
    positions: Tensor,
    slots: Tensor,
    seq_lens: Tensor,
    before: Tensor,
    page_table: Tensor,
    page_size: int,
    max_len: int,
) -> None:
    kernel[(len(slots),)](
        before, page_table, page_table.stride(0), seq_lens, positions, slots, page_size, max_len, page_table.shape[1],
        -1, len(before),
    )  # fmt: skip


@binding("expand_values", *_SAMPLER, layout=_packed("out", "values", "cu_tokens"), int32=("cu_tokens",))
def expand_kernel(kernel: Any, out: Tensor, values: Tensor, cu_tokens: Tensor, old: int, new: int) -> None:
    kernel[(len(values),)](out, values, cu_tokens, old, new, MAX_NUM_TOKENS=128)


@binding(
    "rejection_greedy",
    *_SAMPLER,
    layout={"out": "01", **_packed("cu_drafts", "drafts", "target", "bonus", "greedy")},
    int32=("out", "cu_drafts", "drafts"),
    booleans=("greedy",),
)
def rejection_greedy_sample_kernel(
    kernel: Any, out: Tensor, cu_drafts: Tensor, drafts: Tensor, target: Tensor, bonus: Tensor, greedy: Tensor
) -> None:
    kernel[(len(out),)](out, cu_drafts, drafts, target, bonus, greedy, out.shape[1] - 1, **_no_synthetic(kernel))


@binding(
    "rejection_random",
    *_SAMPLER,
    layout={
        "out": "01",
        "draft_probs": "01",
        "target_probs": "01",
        **_packed("cu_drafts", "drafts", "bonus", "recovered", "uniform", "greedy"),
    },
    int32=("out", "cu_drafts", "drafts", "recovered"),
    booleans=("greedy",),
)
def rejection_random_sample_kernel(
    kernel: Any,
    out: Tensor,
    cu_drafts: Tensor,
    drafts: Tensor,
    draft_probs: Tensor,
    target_probs: Tensor,
    bonus: Tensor,
    recovered: Tensor,
    uniform: Tensor,
    greedy: Tensor,
) -> None:
    kernel[(len(out),)](
        out, cu_drafts, drafts, draft_probs, target_probs, bonus, recovered, uniform, greedy, out.shape[1] - 1,
        draft_probs.shape[1], NO_DRAFT_PROBS=False, **_no_synthetic(kernel, uniform=False),
    )  # fmt: skip


@binding(
    "recovered_tokens",
    *_SAMPLER,
    layout={"draft_probs": "01", "target_probs": "01", "weights": "01", **_packed("out", "cu_drafts", "drafts")},
    int32=("out", "cu_drafts", "drafts"),
)
def sample_recovered_tokens_kernel(
    kernel: Any,
    out: Tensor,
    cu_drafts: Tensor,
    drafts: Tensor,
    draft_probs: Tensor,
    target_probs: Tensor,
    weights: Tensor,
) -> None:
    longest = int(cu_drafts.diff(prepend=cu_drafts.new_zeros(1)).max())
    vocabulary = draft_probs.shape[1]
    # A block of four, so that a small vocabulary has several.
    given = (out, cu_drafts, drafts, draft_probs, target_probs, weights, vocabulary)
    if longest:
        kernel[(len(cu_drafts), longest)](
            *given, **_taken(kernel, BLOCK_SIZE=4, NO_DRAFT_PROBS=False, USE_FP64_GUMBEL=False)
        )


def _no_synthetic(kernel: Any, *, uniform: bool = True) -> dict[str, Any]:
    """Return what newer releases want to know: acceptance is not made up."""
    words = {"uniform_probs_ptr": None} if uniform else {}
    return _taken(kernel, **words, synthetic_conditional_rates_ptr=None, SYNTHETIC_MODE=False)


def _taken(kernel: Any, **words: Any) -> dict[str, Any]:
    """Return the arguments that this release's kernel has."""
    return {name: value for name, value in words.items() if name in kernel.arg_names}
