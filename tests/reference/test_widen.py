"""The widening mode itself: it reaches casts however they are spelled, and cannot pass by doing nothing."""

import pytest
import torch

from tests.widen import Widen


def test_casts_are_widened_and_counted() -> None:
    x = torch.linspace(0, 1, 7, dtype=torch.float64)
    with Widen() as widen:
        results = [x.float(), x.to(torch.float32), torch.softmax(x, -1, dtype=torch.float32), torch.arange(7).float()]
    assert widen.rewrites == 4
    assert {result.dtype for result in results} == {torch.float64}
    assert torch.equal(results[0], x)


def test_no_cast_at_all_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no cast was widened"), Widen():
        torch.ones(3, dtype=torch.float64) * 2


def test_a_float32_result_is_an_error() -> None:
    narrow = torch.ones(3)
    with pytest.raises(AssertionError, match=r"still yields torch\.float32"), Widen():
        narrow * 2


def test_an_error_inside_is_not_hidden() -> None:
    with pytest.raises(KeyError, match="inside"), Widen():
        raise KeyError("inside")
