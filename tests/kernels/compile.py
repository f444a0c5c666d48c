"""Compiles every Triton kernel for a GPU that need not be there; run as a program, in a process of its own.

The driver is a stand-in that names the target, and launches stop once compiled. Prints {kernel: variants} as JSON.
"""

import json
import sys
from collections import Counter

import torch
import triton
from hopper import stand_in
from triton.runtime.jit import JITFunction

from draftproof.kernels import (
    triton_attention,
    triton_cache,
    triton_codes,
    triton_decisions,
    triton_dense,
    triton_fp8,
    triton_gdn,
    triton_linear,
    triton_penalties,
    triton_replay,
    triton_ring,
    triton_sampling,
    triton_state,
    triton_token,
    triton_trees,
)


def compile_only() -> Counter[str]:
    """Make every launch in this process compile and stop there; return the tally of kernels that compiled."""
    stand_in()
    compiled: Counter[str] = Counter()
    run = JITFunction.run

    def only_compile(self: JITFunction, *args: object, grid: object, warmup: bool, **options: object) -> object:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        assert "ptx" in kernel.asm
        compiled[self.fn.__name__] += 1
        return kernel

    JITFunction.run = only_compile
    return compiled


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return zeros: nothing is computed."""
    return torch.zeros(shape, dtype=dtype)


def launch_pools(dtype: torch.dtype) -> None:
    """Launch what addresses a pool, at a model's sizes and at a probe's."""
    for tokens, heads, group, width, page_size in ((1, 8, 4, 64, 16), (512, 8, 4, 64, 1), (3, 2, 3, 5, 4)):
        k_pool, v_pool = values(dtype, 512, heads, width), values(dtype, 512, heads, width + width % 2)
        index = values(torch.int64, tokens)
        out, q = values(dtype, tokens, heads * group, v_pool.shape[2]), values(dtype, tokens, heads * group, width)
        table = values(torch.int64, 4, 512 // page_size)
        triton_attention.paged_attention(out, q, k_pool, v_pool, table, index, index, page_size, 0.125)
        triton_attention.windowed_attention(out, q, k_pool, v_pool, table, index, index, index, page_size, 0.125)
        codes = [values(torch.int8, *pool.shape) for pool in (k_pool, v_pool)]
        scales = [values(torch.int64, *pool.shape[:2]) for pool in (k_pool, v_pool)]
        if dtype != torch.int64:
            fp8 = [values(torch.uint8, *pool.shape) for pool in (k_pool, v_pool)]
            triton_fp8.fp8_write(*fp8, k_pool[:tokens], v_pool[:tokens], index, 0.5, 0.3)
            triton_attention.fp8_attention(out, q, *fp8, table, index, index, index, page_size, 0.125, 0.5, 0.3)
        if dtype == torch.int64:
            triton_codes.quantised_write(*codes, *scales, k_pool[:tokens], v_pool[:tokens], index)
            triton_attention.quantised_attention(out, q, *codes, *scales, table, index, index, index, page_size, 0.125)
        triton_cache.kv_write(k_pool, v_pool, k_pool[:tokens], v_pool[:tokens], index)
        triton_cache.kv_move(k_pool, v_pool, index, index)


def launch_floats(dtype: torch.dtype) -> None:
    """Launch the layers, with widths down to 1."""
    for tokens, width in ((1, 2048), (5, 24), (3, 1)):
        x, weight = values(dtype, tokens, width), values(dtype, width)
        triton_dense.rms_norm(x, x, weight, 1e-5)
        triton_dense.add_rms_norm(x, x, x, weight, 1e-5)
        triton_dense.silu_mul(x, values(dtype, tokens, 2 * width))
        half = max(1, width // 64)
        heads = values(dtype, tokens, 4, 2 * half)
        triton_dense.rope(heads, heads[:, :1], values(torch.int64, tokens), values(torch.float32, half))
        if width == 1:
            continue
        # Compiling the linear kernel takes seconds for each variant: one output is the case that needs its own.
        for outputs in (1,) if width == 24 else (48,):
            x = x[:2]
            out, matrix = values(dtype, len(x), outputs), values(dtype, outputs, width)
            triton_linear.narrow_linear(out, x, matrix)
            triton_linear.norm_linear(out, x, weight, matrix, 1e-5)
            triton_linear.norm_gate_up(out, x, weight, torch.cat((matrix, matrix)), 1e-5)
            triton_linear.linear_add(out, x, matrix)


def launch_tokens(dtype: torch.dtype) -> None:
    """Launch the attention of one token: heads whose halves are padded, and a page size that is no power of two."""
    index, inputs = values(torch.int64, 1), 24
    for heads, group, width, page_size in ((8, 4, 64, 16), (2, 3, 10, 3)):
        pool, out = values(dtype, 512, heads, width), values(dtype, 1, heads * group, width)
        weight = values(dtype, (heads * group + 2 * heads) * width, inputs)
        triton_token.token_attention(
            out, pool, pool, values(dtype, 1, inputs), values(dtype, inputs), weight, 1e-5,
            values(torch.float32, width // 2), index, index, values(torch.int64, 4, 512 // page_size), index, page_size,
            0.125,
        )  # fmt: skip


def launch_states(dtype: torch.dtype) -> None:
    """Launch what linear attention layers have: at a model's sizes in a model's dtype, else at a probe's."""
    kept = torch.int64 if dtype == torch.int64 else torch.float32
    # Rows, width, key heads, value heads, key size, value size, taps.
    sizes = (2, 4, 16, 32, 128, 128, 4) if dtype == torch.bfloat16 else (2, 3, 1, 2, 3, 5, 2)
    rows, width, keys, heads, k_width, v_width, taps = sizes
    channels = 2 * keys * k_width + heads * v_width
    x, gate, index = (
        values(dtype, rows, width, channels),
        values(dtype, rows, width, heads),
        values(torch.int64, rows),
    )
    out, states = values(dtype, rows, width, heads, v_width), values(kept, rows, width, heads, k_width, v_width)
    pool, window, weight = states[:, 0], values(dtype, rows, taps - 1, channels), values(dtype, channels, taps)
    per_head, starts = (values(kept, heads), values(kept, heads)), torch.arange(rows + 1)
    triton_state.conv_verify(x, values(dtype, rows, width, taps - 1, channels), x, window, weight, index)
    triton_state.conv_update(x[:, 0], window, window, x[:, 0], weight, index, starts, index, index)
    triton_gdn.gdn_verify(out, states, x, gate, gate, *per_head, pool, index)
    # One row, which is few enough for triton_ahead at a model's sizes, too.
    triton_gdn.gdn_verify(out[:1], states, x[:1], gate[:1], gate[:1], *per_head, pool, index[:1])
    parents = values(torch.int64, rows, width - 1)
    triton_state.conv_verify_tree(x, values(dtype, rows, width, taps - 1, channels), x, window, weight, index, parents)
    triton_gdn.gdn_verify_tree(out, states, x, gate, gate, *per_head, pool, index, parents)
    packed = (out[:, 0], pool, pool, x[:, 0], gate[:, 0], gate[:, 0])
    triton_gdn.gdn_update(*packed, *per_head, index, starts, index, index)
    triton_gdn.gated_norm(out[0, 0], out[0, 0], out[0, 0], values(kept, v_width), 1e-6)
    inputs, gates = values(dtype, 2, rows, taps - 1 + width, channels), values(dtype, 2, rows, width, 2, heads)
    cursor, model = values(torch.int64, rows, 2), (weight, *per_head)
    triton_replay.gdn_replay(out, pool, inputs, gates, x, gate, gate, *model, cursor, index)
    # Pending and new tokens enough for a chunk.
    many = (values(dtype, rows, 8, *shape[2:]) for shape in (out.shape, x.shape, gate.shape, gate.shape))
    longer = values(dtype, 2, rows, taps - 1 + 8, channels), values(dtype, 2, rows, 8, 2, heads)
    triton_replay.gdn_replay(next(many), pool, *longer, *many, *model, cursor, index)
    triton_replay.gdn_replay_tree(out, pool, inputs, gates, x, gate, gate, *model, cursor, index, parents)
    triton_replay.replay_move(inputs[None], gates[None], cursor, index, parents)
    triton_replay.gdn_flush(pool, inputs, cursor, gates, *model, index)
    triton_replay.gdn_checkpoint(pool, window, pool, inputs, gates, *model, cursor, index, index, index)
    triton_state.state_scatter(pool[None], states[None], index, index)
    triton_state.state_scatter(pool[None].transpose(2, 3), states[None].transpose(3, 4).contiguous(), index, index)
    triton_state.checkpoint_steps(index, index, index, 3)
    triton_state.replay_commit(cursor, index, index)
    triton_state.replay_rewind(cursor, index)


def launch_integers() -> None:
    """Launch the decisions and the ring's arithmetic."""
    for rows, width in ((1, 1), (3, 5)):
        matrix, vector = values(torch.int64, rows, width), values(torch.int64, rows)
        triton_decisions.assign_slots(matrix, matrix, matrix, vector, vector, vector, 4, 64)
        triton_decisions.greedy_accept(vector, vector, matrix, matrix, matrix, vector)
        for dtype in (torch.int64, torch.float32, torch.bfloat16):
            triton_decisions.greedy_choice(vector, values(dtype, rows, width * 20000))
        triton_trees.accept_tree(vector, vector, matrix, matrix, matrix, matrix[:, 1:], vector)
        for dtype in (torch.float32, torch.bfloat16):
            scores, logits = values(torch.float64, rows, 3), values(dtype, rows, width * 2000 + 3)
            triton_trees.best_choices(values(torch.int64, rows, 3), scores, logits)
            tables = [values(torch.int64, 4, logits.shape[1])] * 3
            penalised = values(torch.int64, rows, width, logits.shape[1])
            triton_penalties.apply_penalties(penalised, matrix, matrix, vector, *tables, *[vector] * 3)
        for vocabulary in (width, width * 20000):
            for siblings in (matrix, matrix[:, :1]):
                weights = values(torch.int64, rows, vocabulary)
                triton_sampling.sampled_choice(vector, weights, siblings, vector, vector)
                triton_sampling.rejection_choice(vector, weights, weights, *[vector] * 3)
        for salt in (0, 1, -1):
            triton_ring.ring_mix(matrix, matrix, salt)
        triton_ring.ring_linear(matrix, values(torch.int64, rows, 7), values(torch.int64, width, 7))


def main() -> None:
    """Compile everything and print the tally."""
    compiled = compile_only()
    for dtype in (torch.int64, torch.float32, torch.bfloat16):
        launch_pools(dtype)
        launch_states(dtype)
    for dtype in (torch.float32, torch.bfloat16):
        launch_floats(dtype)
        launch_tokens(dtype)
    launch_integers()
    json.dump({"triton": triton.__version__, "kernels": compiled}, sys.stdout)


if __name__ == "__main__":
    main()
