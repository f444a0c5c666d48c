"""The ring's mix: every bit of the input matters, and the values are SplitMix64's."""

import itertools

import torch

from draftproof import kernels
from draftproof.reference import ops

DRAWS = 10_000


def mixed(x: torch.Tensor, salt: int = 0) -> torch.Tensor:
    """Return ring_mix of x."""
    out = torch.empty_like(x)
    kernels.ring_mix(out, x, salt)
    return out


def test_every_flip_of_one_bit_changes_the_output_and_half_of_its_bits_on_average():
    x = torch.randint(-(1 << 63), (1 << 63) - 1, (DRAWS,), generator=torch.Generator().manual_seed(0))
    before = mixed(x)
    for bit in range(64):
        after = mixed(x ^ (1 << bit if bit < 63 else -(1 << 63)))
        changed = before ^ after
        assert changed.all(), f"a flip of bit {bit} is lost"
        ones = sum(int(((changed >> shift) & 1).sum()) for shift in range(64))
        assert 30 < ones / DRAWS < 34, f"a flip of bit {bit} changes {ones / DRAWS} bits"


def ring(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Return odd elements: an even factor would shift the other's highest bits out of the ring."""
    return torch.randint(-(1 << 63), (1 << 63) - 1, shape, generator=generator) | 1


def test_every_visible_bit_of_attention_reaches_the_output():
    """Weights are odd whatever q and k are, so bits of v are never lost; those of q and k are not if both are odd."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = ring(generator, 1, 2, 3), ring(generator, 5, 1, 3), ring(generator, 5, 1, 4)
    index = torch.tensor([[4, 2, 3]]), torch.tensor([0]), torch.tensor([2])

    def attend() -> torch.Tensor:
        out = torch.empty(1, 2, 4, dtype=torch.int64)
        kernels.paged_attention(out, q, k, v, *index, 1, 1.0)
        return out

    before = attend()
    for tensor, slots in ((q, range(1)), (k, (2, 3, 4)), (v, (2, 3, 4))):
        flat = tensor.view(tensor.shape[0], -1)
        for slot, place, bit in itertools.product(slots, range(flat.shape[1]), range(64)):
            flip = 1 << bit if bit < 63 else -(1 << 63)
            flat[slot, place] ^= flip
            assert not torch.equal(attend(), before), (slot, place, bit)
            flat[slot, place] ^= flip


def test_the_first_values_of_splitmix64_with_seed_zero():
    # From the reference program: the generator's n-th output is mix(n * golden ratio).
    outputs = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    for n, expected in enumerate(outputs, start=1):
        assert mixed(torch.tensor([0]), salt=n).item() % (1 << 64) == expected
    twin = torch.empty(1, dtype=torch.int64)
    ops.ring_mix(twin, torch.tensor([0]), 1)
    assert twin.item() % (1 << 64) == outputs[0]
    assert mixed(torch.tensor([0])).item() == 0
