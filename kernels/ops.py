"""The torch ops. Schemas name the arguments and what is mutated; shapes and meaning are in the eager functions."""

from draftproof.kernels import (
    eager_attention,
    eager_cache,
    eager_decisions,
    eager_dense,
    eager_gdn,
    eager_linear,
    eager_ring,
    eager_state,
)
from draftproof.kernels.registry import register

kv_write = register(
    "kv_write(Tensor(a!) k_pool, Tensor(b!) v_pool, Tensor k, Tensor v, Tensor slots) -> ()",
    eager_cache.kv_write,
    "triton_cache",
)
kv_move = register(
    "kv_move(Tensor(a!) k_pool, Tensor(b!) v_pool, Tensor src, Tensor dst) -> ()",
    eager_cache.kv_move,
    "triton_cache",
)
paged_attention = register(
    "paged_attention(Tensor(a!) out, Tensor q, Tensor k_pool, Tensor v_pool, Tensor table, Tensor rows,"
    " Tensor positions, int page_size, float scale) -> ()",
    eager_attention.paged_attention,
    "triton_attention",
)
rms_norm = register(
    "rms_norm(Tensor(a!) out, Tensor x, Tensor weight, float eps) -> ()",
    eager_dense.rms_norm,
    "triton_dense",
)
add_rms_norm = register(
    "add_rms_norm(Tensor(a!) out, Tensor(b!) residual, Tensor x, Tensor weight, float eps) -> ()",
    eager_dense.add_rms_norm,
    "triton_dense",
)
silu_mul = register(
    "silu_mul(Tensor(a!) out, Tensor gate_up) -> ()",
    eager_dense.silu_mul,
    "triton_dense",
)
rope = register(
    "rope(Tensor(a!) q, Tensor(b!) k, Tensor positions, Tensor inv_freq) -> ()",
    eager_dense.rope,
    "triton_dense",
)
assign_slots = register(
    "assign_slots(Tensor(a!) positions, Tensor(b!) slots, Tensor table, Tensor rows, Tensor lengths, Tensor counts,"
    " int page_size, int max_len) -> ()",
    eager_decisions.assign_slots,
    "triton_decisions",
)
greedy_accept = register(
    "greedy_accept(Tensor(a!) correct_len, Tensor(b!) bonus, Tensor ids, Tensor choice, Tensor counts) -> ()",
    eager_decisions.greedy_accept,
    "triton_decisions",
)
greedy_choice = register(
    "greedy_choice(Tensor(a!) choice, Tensor logits) -> ()",
    eager_decisions.greedy_choice,
    "triton_decisions",
)
ring_mix = register(
    "ring_mix(Tensor(a!) out, Tensor x, int salt) -> ()",
    eager_ring.ring_mix,
    "triton_ring",
)
ring_linear = register(
    "ring_linear(Tensor(a!) out, Tensor x, Tensor weight) -> ()",
    eager_ring.ring_linear,
    "triton_ring",
)
narrow_linear = register(
    "narrow_linear(Tensor(a!) out, Tensor x, Tensor weight) -> ()",
    eager_linear.narrow_linear,
    "triton_linear",
)
norm_linear = register(
    "norm_linear(Tensor(a!) out, Tensor x, Tensor norm, Tensor weight, float eps) -> ()",
    eager_linear.norm_linear,
    "triton_linear",
)
norm_gate_up = register(
    "norm_gate_up(Tensor(a!) out, Tensor x, Tensor norm, Tensor weight, float eps) -> ()",
    eager_linear.norm_gate_up,
    "triton_linear",
)
linear_add = register(
    "linear_add(Tensor(a!) residual, Tensor x, Tensor weight) -> ()",
    eager_linear.linear_add,
    "triton_linear",
)
conv_verify = register(
    "conv_verify(Tensor(a!) out, Tensor(b!) windows, Tensor x, Tensor conv, Tensor weight, Tensor slots) -> ()",
    eager_state.conv_verify,
    "triton_state",
)
conv_update = register(
    "conv_update(Tensor(a!) out, Tensor(b!) conv, Tensor(c!) track, Tensor x, Tensor weight, Tensor"
    " slots, Tensor starts, Tensor track_slots, Tensor track_steps) -> ()",
    eager_state.conv_update,
    "triton_state",
)
state_scatter = register(
    "state_scatter(Tensor(a!) pool, Tensor steps, Tensor slots, Tensor last_correct_step_indices) -> ()",
    eager_state.state_scatter,
    "triton_state",
)
checkpoint_steps = register(
    "checkpoint_steps(Tensor(a!) steps, Tensor lengths, Tensor counts, int interval) -> ()",
    eager_state.checkpoint_steps,
    "triton_state",
)
replay_commit = register(
    "replay_commit(Tensor(a!) cursor, Tensor slots, Tensor last_correct_step_indices) -> ()",
    eager_state.replay_commit,
    "triton_state",
)
replay_rewind = register(
    "replay_rewind(Tensor(a!) cursor, Tensor slots) -> ()",
    eager_state.replay_rewind,
    "triton_state",
)
gdn_verify = register(
    "gdn_verify(Tensor(a!) out, Tensor(b!) states, Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor"
    " dt_bias, Tensor ssm, Tensor slots) -> ()",
    eager_gdn.gdn_verify,
    "triton_gdn",
)
gdn_update = register(
    "gdn_update(Tensor(a!) out, Tensor(b!) ssm, Tensor(c!) track, Tensor qkv, Tensor a, Tensor b, Tensor"
    " a_log, Tensor dt_bias, Tensor slots, Tensor starts, Tensor track_slots, Tensor track_steps) -> ()",
    eager_gdn.gdn_update,
    "triton_gdn",
)
gdn_replay = register(
    "gdn_replay(Tensor(a!) out, Tensor(b!) ssm, Tensor(c!) inputs, Tensor(d!) gates, Tensor x, Tensor a,"
    " Tensor b, Tensor weight, Tensor a_log, Tensor dt_bias, Tensor cursor, Tensor slots) -> ()",
    eager_gdn.gdn_replay,
    "triton_replay",
)
gdn_flush = register(
    "gdn_flush(Tensor(a!) ssm, Tensor(b!) inputs, Tensor cursor, Tensor gates, Tensor weight, Tensor"
    " a_log, Tensor dt_bias, Tensor slots) -> ()",
    eager_gdn.gdn_flush,
    "triton_replay",
)
gdn_checkpoint = register(
    "gdn_checkpoint(Tensor(a!) track_ssm, Tensor(b!) track_conv, Tensor ssm, Tensor inputs, Tensor gates,"
    " Tensor weight, Tensor a_log, Tensor dt_bias, Tensor cursor, Tensor slots, Tensor track_slots, Tensor"
    " steps) -> ()",
    eager_gdn.gdn_checkpoint,
    "triton_replay",
)
gated_norm = register(
    "gated_norm(Tensor(a!) out, Tensor x, Tensor z, Tensor weight, float eps) -> ()",
    eager_gdn.gated_norm,
    "triton_gdn",
)
