"""The Triton kernels on a GPU: the same contracts, larger sizes, and capture in a CUDA graph."""

import pytest
import torch

from draftproof import kernels
from draftproof.properties.kernels.table import OPS
from draftproof.reference import ops
from tests.kernels.lane import tally

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: run by make test-gpu on a GPU machine"),
]


@pytest.mark.parametrize("op", OPS)
def test_every_contract_holds(op: str):
    seen = tally(op, (torch.float32, torch.bfloat16), examples=25, device="cuda")
    assert seen.differences == []
    assert seen.examples >= 10
    assert seen.changed > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("tokens", [1, 5, 64])
def test_long_contexts_agree_with_the_eager_implementation(dtype: torch.dtype, page_size: int, tokens: int):
    generator = torch.Generator().manual_seed(tokens)
    slots, pages = 8192, 2048 // page_size

    def values(*shape: int) -> torch.Tensor:
        if dtype == torch.int64:
            return torch.randint(-(1 << 63), (1 << 63) - 1, shape, generator=generator)
        return torch.randn(shape, generator=generator).to(dtype)

    q, k, v, out = values(tokens, 8, 64), values(slots, 2, 64), values(slots, 2, 48), values(tokens, 8, 48)
    table = torch.randperm(slots // page_size, generator=generator)[: 3 * pages].reshape(3, pages)
    rows = torch.randint(0, 3, (tokens,), generator=generator)
    positions = torch.randint(0, 2048, (tokens,), generator=generator)
    on_gpu = [tensor.cuda() for tensor in (out, q, k, v, table, rows, positions)]
    kernels.paged_attention(out, q, k, v, table, rows, positions, page_size, 0.125)
    kernels.paged_attention(*on_gpu, page_size, 0.125)
    if dtype == torch.int64:
        assert torch.equal(on_gpu[0].cpu(), out)
    else:
        bound = 1e-5 if dtype == torch.float32 else 1e-2
        assert (on_gpu[0].cpu().double() - out.double()).abs().max() < bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_choice_over_a_large_vocabulary_is_the_lowest_of_the_best(dtype: torch.dtype):
    logits = torch.zeros(7, 128256, dtype=dtype)
    logits[0, [127999, 4096, 70000]] = 3.0
    logits[1] = float("nan")
    logits[2, :5000] = float("nan")
    logits[3] = float("-inf")
    logits[3, :9000] = float("nan")
    logits[4, 128255] = 1.0
    logits[5] = float("-inf")
    logits[6, 1] = float("inf")
    choice, expected = torch.empty(7, dtype=torch.int64, device="cuda"), torch.empty(7, dtype=torch.int64)
    kernels.greedy_choice(choice, logits.cuda())
    ops.greedy_choice(expected, logits)
    assert choice.tolist() == expected.tolist() == [4096, 0, 5000, 9000, 128255, 0, 1]


def test_every_decoding_op_can_be_captured_and_replayed_on_new_values():
    device, generator = "cuda", torch.Generator().manual_seed(3)
    k_pool, v_pool = (torch.zeros(64, 2, 16, device=device) for _ in range(2))
    k, v = (torch.randn(3, 2, 16, generator=generator).to(device) for _ in range(2))
    q, out = torch.randn(3, 4, 16, generator=generator).to(device), torch.zeros(3, 4, 16, device=device)
    table = torch.arange(1, 13, device=device).reshape(3, 4)
    rows, lengths = torch.arange(3, device=device), torch.tensor([1, 5, 9], device=device)
    positions, slots, choice = (torch.zeros(3, 1, dtype=torch.int64, device=device) for _ in range(3))
    counts, source = torch.zeros(3, dtype=torch.int64, device=device), torch.tensor([4, 5, 6], device=device)

    def step() -> None:
        kernels.assign_slots(positions, slots, table, rows, lengths, counts, 4, 16)
        kernels.kv_write(k_pool, v_pool, k, v, slots[:, 0])
        kernels.paged_attention(out, q, k_pool, v_pool, table, rows, positions[:, 0], 4, 0.25)
        kernels.kv_move(k_pool, v_pool, source, source + 50)
        kernels.greedy_choice(choice[:, 0], out.flatten(1))

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    lengths += 2
    k.neg_()
    results = []
    start = k_pool.clone(), v_pool.clone()
    for run in (graph.replay, step):
        k_pool.copy_(start[0])
        v_pool.copy_(start[1])
        out.fill_(float("nan"))
        run()
        results.append([tensor.clone() for tensor in (k_pool, v_pool, out, positions, slots, choice)])
    assert all(torch.equal(replayed, eager) for replayed, eager in zip(*results, strict=True))
    assert positions[:, 0].tolist() == [3, 7, 11]
