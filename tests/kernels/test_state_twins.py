"""The twins of recurrent state against witnesses of another origin, and snapshot against replay."""

from types import ModuleType

import pytest
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from draftproof import kernels
from draftproof.reference import ops

# Pairwise distinct: rows, width, allocated steps, slots, key heads, value heads, key and value size, conv width.
B, W, A, S, N, U, H, E, C = 3, 4, 7, 8, 2, 6, 5, 9, 10
D = 2 * N * H + U * E


def values(generator: torch.Generator, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Return random values: the whole ring, or a normal distribution."""
    if dtype == torch.int64:
        return torch.randint(-(1 << 63), (1 << 63) - 1, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def test_the_delta_rule_is_that_of_transformers():
    generator = torch.Generator().manual_seed(1)
    qkv, a, b = (values(generator, B, W, size, dtype=torch.float64) for size in (D, U, U))
    a_log, dt_bias = (values(generator, U, dtype=torch.float64) for _ in range(2))
    ssm, slots = values(generator, S, U, H, E, dtype=torch.float64), torch.tensor([5, 0, 2])
    out, states = torch.empty(B, W, U, E, dtype=torch.float64), torch.empty(B, A, U, H, E, dtype=torch.float64)
    ops.gdn_verify(out, states, qkv, a, b, a_log, dt_bias, ssm, slots)

    q, k, v = qkv.split((N * H, N * H, U * E), -1)
    decay = -a_log.exp() * torch.nn.functional.softplus(a + dt_bias)
    for t in range(1, W + 1):
        expected, last = torch_recurrent_gated_delta_rule(
            q.reshape(B, W, N, H)[:, :t],
            k.reshape(B, W, N, H)[:, :t],
            v.reshape(B, W, U, E)[:, :t],
            g=decay[:, :t],
            beta=b.sigmoid()[:, :t],
            initial_state=ssm[slots],
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        # The witness computes in float32.
        torch.testing.assert_close(out[:, :t], expected.double(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(states[:, t - 1], last.double(), rtol=1e-5, atol=1e-5)


def test_the_convolution_is_that_of_torch():
    generator = torch.Generator().manual_seed(2)
    x, weight = values(generator, 1, W + 9, D, dtype=torch.float64), values(generator, D, C, dtype=torch.float64)
    conv = values(generator, 2, C - 1, D, dtype=torch.float64)
    inputs = torch.cat((conv[1], x[0])).T[None]
    expected = torch.nn.functional.silu(torch.nn.functional.conv1d(inputs, weight[:, None], groups=D))[0].T
    out, windows = torch.empty_like(x), torch.empty(1, W + 9, C - 1, D, dtype=torch.float64)
    ops.conv_verify(out, windows, x, conv, weight, torch.tensor([1]))
    torch.testing.assert_close(out[0], expected, rtol=1e-13, atol=1e-13)
    assert all(torch.equal(windows[0, t], inputs[0].T[t + 1 : t + C]) for t in range(W + 9))


def test_the_gated_norm_is_that_of_torch():
    generator = torch.Generator().manual_seed(3)
    x, z = (values(generator, B, E, dtype=torch.float64) for _ in range(2))
    weight, out = values(generator, E, dtype=torch.float64), torch.empty(B, E, dtype=torch.float64)
    ops.gated_norm(out, x, z, weight, 1e-6)
    expected = torch.nn.functional.rms_norm(x, (E,), weight, 1e-6) * torch.nn.functional.silu(z)
    torch.testing.assert_close(out, expected, rtol=1e-13, atol=1e-13)


class Layer:
    """One gated delta net layer in the ring, on one request in slot 5, as snapshots and as replay."""

    def __init__(self, module: ModuleType, seed: int):
        self.ops, self.generator = module, torch.Generator().manual_seed(seed)
        self.weight, self.a_log, self.dt_bias = self.draw(D, C), self.draw(U), self.draw(U)
        self.conv, self.ssm = self.draw(S, C - 1, D), self.draw(S, U, H, E)
        self.base = self.ssm.clone()
        self.inputs, self.gates = self.draw(2, S, C - 1 + A, D), self.draw(2, S, A, 2, U)
        self.inputs[0, :, : C - 1] = self.conv
        self.cursor, self.slot = torch.zeros(S, 2, dtype=torch.int64), torch.tensor([5])

    def draw(self, *shape: int) -> torch.Tensor:
        return values(self.generator, *shape, dtype=torch.int64)

    def snapshot(self, tokens: tuple[torch.Tensor, ...], last: int) -> torch.Tensor:
        """Verify by snapshots, commit row `last`; return the output."""
        x, a, b = tokens
        y, out = torch.empty_like(x), self.draw(1, x.shape[1], U, E)
        windows, states = self.draw(2, A, C - 1, D), self.draw(2, A, U, H, E)
        self.ops.conv_verify(y, windows, x, self.conv, self.weight, self.slot)
        self.ops.gdn_verify(out, states, y, a, b, self.a_log, self.dt_bias, self.ssm, self.slot)
        index = torch.tensor([last])
        self.ops.state_scatter(self.conv[None], windows[None], self.slot, index)
        self.ops.state_scatter(self.ssm[None], states[None], self.slot, index)
        return out

    def replay(self, tokens: tuple[torch.Tensor, ...], last: int) -> torch.Tensor:
        """Verify by replay, commit up to row `last`; return the output."""
        x, a, b = tokens
        out, weights = self.draw(1, x.shape[1], U, E), (self.weight, self.a_log, self.dt_bias)
        self.ops.gdn_replay(out, self.base, self.inputs, self.gates, x, a, b, *weights, self.cursor, self.slot)
        self.ops.replay_commit(self.cursor, self.slot, torch.tensor([last]))
        return out

    def checkpoint(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The state and window after a pending step."""
        track = self.draw(2, U, H, E), self.draw(2, C - 1, D)
        pools = self.base, self.inputs, self.gates, self.weight, self.a_log, self.dt_bias, self.cursor
        self.ops.gdn_checkpoint(*track, *pools, self.slot, torch.tensor([1]), torch.tensor([step]))
        return track[0][1], track[1][1]

    def flush(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The state and window with nothing pending any more."""
        weights = self.weight, self.a_log, self.dt_bias
        self.ops.gdn_flush(self.base, self.inputs, self.cursor, self.gates, *weights, self.slot)
        self.ops.replay_rewind(self.cursor, self.slot)
        assert self.cursor[5, 0] == 0
        return self.base[5], self.inputs[self.cursor[5, 1], 5, : C - 1]


@pytest.mark.parametrize("module", [ops, kernels], ids=["twin", "eager"])
def test_snapshot_and_replay_agree_to_the_bit(module: ModuleType):
    layer = Layer(module, 4)
    for width, last in ((W, 1), (1, 0), (A, A - 1), (W, W - 1), (W, 0)):
        tokens = layer.draw(1, width, D), layer.draw(1, width, U), layer.draw(1, width, U)
        assert torch.equal(layer.replay(tokens, last), layer.snapshot(tokens, last))
        for state, pool in zip(layer.checkpoint(last), (layer.ssm, layer.conv), strict=True):
            assert torch.equal(state, pool[5])
    for state, pool in zip(layer.flush(), (layer.ssm, layer.conv), strict=True):
        assert torch.equal(state, pool[5])
    others = [s for s in range(S) if s != 5]
    assert torch.equal(layer.base[others], layer.ssm[others])


@pytest.mark.parametrize("module", [ops, kernels], ids=["twin", "eager"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_prefill_in_chunks_agrees_with_verify(module: ModuleType, dtype: torch.dtype):
    """Seven tokens, as one sequence of two chunks after each other, and as rows of one verify launch."""
    generator = torch.Generator().manual_seed(5)
    x, a, b = (values(generator, 1, A, size, dtype=dtype) for size in (D, U, U))
    weight, a_log, dt_bias = (values(generator, *shape, dtype=dtype) for shape in ((D, C), (U,), (U,)))
    conv, ssm = values(generator, S, C - 1, D, dtype=dtype), values(generator, S, U, H, E, dtype=dtype)
    slot, first = torch.tensor([3]), 2
    y, out = torch.empty_like(x), torch.empty(1, A, U, E, dtype=dtype)
    windows, states = torch.empty(1, A, C - 1, D, dtype=dtype), torch.empty(1, A, U, H, E, dtype=dtype)
    module.conv_verify(y, windows, x, conv, weight, slot)
    module.gdn_verify(out, states, y, a, b, a_log, dt_bias, ssm, slot)

    packed, outs = torch.empty_like(x[0]), torch.empty_like(out[0])
    tracks = conv.clone(), ssm.clone()
    for chunk in (slice(0, first), slice(first, A)):
        starts, step = torch.tensor([0, chunk.stop - chunk.start]), torch.tensor([1 if chunk.start else -1])
        where = slot, starts, torch.tensor([6]), step
        module.conv_update(packed[chunk], conv, tracks[0], x[0, chunk], weight, *where)
        gates = a[0, chunk], b[0, chunk], a_log, dt_bias
        module.gdn_update(outs[chunk], ssm, tracks[1], packed[chunk], *gates, *where)
    for got, expected in ((packed, y[0]), (outs, out[0]), (conv[3], windows[0, -1]), (ssm[3], states[0, -1])):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    for got, expected in ((tracks[0][6], windows[0, first + 1]), (tracks[1][6], states[0, first + 1])):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
