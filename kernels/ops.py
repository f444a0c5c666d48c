"""The torch ops. Schemas name the arguments and what is mutated; shapes and meaning are in the eager functions."""

from draftproof.kernels import eager_attention, eager_cache, eager_decisions, eager_dense, eager_linear, eager_ring
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
