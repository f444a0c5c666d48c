"""The model that decoding is timed on, a Llama of about 1B parameters with random weights, and greedy decoding with it.

Sizes are those of Llama 3.2 1B, the lm_head tied like its; the draft is off. `B` requests, all of one length, `V`
vocabulary.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import timing
import torch
from shapes import llama_config, sizes_of

from draftproof import kernels
from draftproof.engine.cache import PagedCache
from draftproof.engine.models.base import AttentionMetadata
from draftproof.engine.models.llama import Llama
from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig

PAGE = 16
LLAMA_1B = sizes_of(128256, 2048, 8192, 16, 32, 8, 64)
TINY = sizes_of(256, 64, 128, 2, 4, 2, 16)


@dataclass(frozen=True)
class Setup:
    """What is timed and how often; times are medians over `repeats`."""

    sizes: dict[str, int]
    device: str
    dtype: torch.dtype
    batches: tuple[int, ...]
    prompt: int
    new: int
    repeats: int
    copy_bytes: int
    seed: int


def setup(given: Namespace, times: int = 1) -> Setup:
    """Return the H200 run, or one that a CPU does in seconds; by default with so many times the repeats."""
    batches = tuple(vars(given).get("batch") or ())
    repeats = vars(given).get("repeats")
    if given.tiny:
        return Setup(TINY, "cpu", torch.float32, batches or (1, 3), 8, 6, repeats or 2 * times, 1 << 22, given.seed)
    repeats = repeats or 5 * times
    return Setup(LLAMA_1B, "cuda", torch.bfloat16, batches or (1, 8, 64), 128, 128, repeats, 1 << 32, given.seed)


def engine_model(given: Setup, tensors: dict[str, torch.Tensor]) -> Llama:
    """Return the engine's model over the weights."""
    return Llama(parse_config(llama_config(given.sizes), LlamaConfig), tensors)


def transformers_model(given: Setup, tensors: dict[str, torch.Tensor]) -> Any:
    """Return transformers' model over the same weights, with its default attention."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    fields = {name: value for name, value in llama_config(given.sizes).items() if name != "architectures"}
    config = LlamaConfig(**fields, bos_token_id=0, eos_token_id=None, pad_token_id=0)
    # Not `.to(dtype)` afterwards: that would round the rotary frequencies too.
    with torch.device(given.device):
        model = AutoModelForCausalLM.from_config(config, dtype=given.dtype, attn_implementation="sdpa").eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise RuntimeError(f"weights do not fit transformers' model: missing {missing}, unexpected {unexpected}")
    return model


def weight_bytes(dense: Llama) -> int:
    """Bytes of weights that one decode step reads: all but the embedding, of which it gathers a row per request."""
    read = {tensor.data_ptr(): tensor.nbytes for tensor in dense.weights()}
    if dense.embedding.data_ptr() != dense.lm_head.data_ptr():
        del read[dense.embedding.data_ptr()]
    return sum(read.values())


class DecodeLoop:
    """`prefill` starts every request anew, `step` makes one token for each: [B] token ids in `ids`.

    On a CUDA device a step is one graph, and feeds its tokens to the next. `cache` has all that was run.
    """

    def __init__(self, dense: Llama, given: Setup, batch: int) -> None:
        self._dense, self._batch, self._device = dense, batch, given.device
        self._max_len = -(-(given.prompt + given.new + 1) // PAGE) * PAGE
        self.cache = self._new_cache()
        self.ids, self._lengths, self._counts = torch.zeros((3, batch), dtype=torch.int64, device=self._device)
        self._rows = torch.arange(1, batch + 1, device=self._device)
        self.logits = torch.empty(0)
        self.step: Callable[[], None] = self._eager_step
        self.prefill(torch.zeros((batch, given.prompt), dtype=torch.int64, device=self._device))
        if self._device == "cuda":
            self.step = timing.captured(self._eager_step, warm=lambda: [self._eager_step() for _ in range(2)])

    def prefill(self, prompts: torch.Tensor) -> None:
        """Run prompts [B, n]; their first tokens are in `ids`, and the logits that gave them in `logits` [B, V]."""
        length = prompts.shape[1]
        rows = self._rows.repeat_interleave(length)
        where = self._where(rows, torch.arange(length, device=self._device).repeat(self._batch))
        hidden = self._dense.forward(prompts.reshape(-1), where, self.cache)
        self.logits = self._dense.logits(hidden.view(self._batch, length, -1)[:, -1])
        kernels.greedy_choice(self.ids, self.logits)
        self._lengths.fill_(length)

    def _eager_step(self) -> None:
        hidden = self._dense.forward(self.ids, self._where(self._rows, self._lengths), self.cache)
        kernels.greedy_choice(self.ids, self._dense.logits(hidden))
        self._lengths.add_(1)

    def _where(self, rows: torch.Tensor, lengths: torch.Tensor) -> AttentionMetadata:
        positions, slots = torch.empty_like(lengths), torch.empty_like(lengths)
        live = self._counts if rows is self._rows else torch.zeros_like(rows)
        kernels.assign_slots(
            positions[:, None], slots[:, None], self.cache.page_table, rows, lengths, live, PAGE, self._max_len
        )
        return AttentionMetadata(rows, positions, slots)

    def _new_cache(self) -> PagedCache:
        shape, per_row = self._dense.cache_shape, self._max_len // PAGE
        slots = (self._batch * per_row + 1) * PAGE
        pools = [
            torch.zeros((2, slots, shape.kv_heads, shape.key_dim), dtype=shape.dtype, device=self._device)
            for _ in range(shape.layers)
        ]
        table = torch.zeros((self._batch + 1, per_row), dtype=torch.int64, device=self._device)
        # Pages in a shuffled order, as they are in a pool that has been in use.
        pages = torch.randperm(self._batch * per_row, generator=torch.Generator().manual_seed(0)) + 1
        table[1:] = pages.view(self._batch, per_row).to(self._device)
        return PagedCache(tuple(pool[0] for pool in pools), tuple(pool[1] for pool in pools), table, PAGE)
