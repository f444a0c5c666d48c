"""Pages and rows: each owned once, and given back."""

import pytest
import torch

from draftproof.engine.pages import PagePool, PageTable


def table(rows: int = 3, columns: int = 4) -> PageTable:
    return PageTable(torch.zeros((rows, columns), dtype=torch.int64))


def test_rows_grow_page_by_page_and_the_device_table_follows():
    pool, requests = PagePool([5, 3, 1, 2, 4]), table()
    row = requests.take_row()
    requests.grow([(row, 2)], pool)
    requests.grow([(row, 3)], pool)
    assert row == 1
    assert requests.pages[row] == [5, 3, 1]
    assert requests.device[row].tolist() == [5, 3, 1, 0]
    assert pool.free == 2


def test_release_returns_row_and_pages_and_the_next_owner_gets_them_first():
    pool, requests = PagePool([1, 2, 3]), table()
    row = requests.take_row()
    requests.grow([(row, 2)], pool)
    pages = requests.release(row)
    assert pages == (1, 2)
    pool.give_back(pages)
    again = requests.take_row()
    requests.grow([(again, 1)], pool)
    assert (again, requests.pages[again], pool.free) == (row, [1], 2)


def test_a_row_begins_on_pages_that_it_is_given():
    pool, requests = PagePool([1, 2, 3]), table()
    row = requests.take_row()
    requests.begin(row, [7, 5])
    requests.grow([(row, 3)], pool)
    assert requests.pages[row] == [7, 5, 1]
    assert requests.device[row].tolist() == [7, 5, 1, 0]


def test_columns_that_went_back_name_no_page_on_the_device_either():
    """Nothing else looks at these: a kernel with the right window does not read them (S-WINDOW-3)."""
    pool, requests = PagePool([4, 3, 2, 1]), table()
    row = requests.take_row()
    requests.grow([(row, 3)], pool)
    assert requests.drop(row, 2) == (4, 3)
    assert requests.pages[row] == [0, 0, 2]
    assert requests.device[row].tolist() == [0, 0, 2, 0]
    assert requests.drop(row, 2) == ()


@pytest.mark.parametrize("owned", [[1], [1, 2, 2], [1, 2, 3]], ids=["lost", "twice", "owned and free"])
def test_check_names_an_unbalanced_pool(owned: list[int]):
    pool = PagePool([3, 2, 1])
    pool.take()
    with pytest.raises(RuntimeError, match="out of balance"):
        pool.check(owned)


def test_check_accepts_a_balanced_pool():
    pool = PagePool([3, 2, 1])
    page = pool.take()
    pool.check([page])
    assert page == 3
