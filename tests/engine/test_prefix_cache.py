"""The tree of a prefix cache: what it finds, keeps, locks and evicts."""

import pytest

from draftproof.engine.prefix_cache import Evicted, PrefixCache
from draftproof.engine.states.slots import StateSlots

TEXT = (5, 6, 7, 8, 9, 10, 11)


def cache(lookahead: int = 0) -> PrefixCache:
    return PrefixCache(page_size=2, lookahead=lookahead, keeps=True)


def pages(of: PrefixCache) -> dict[tuple[int, ...], int]:
    return {of.prefix(node): node.page for node in of.nodes()}


@pytest.mark.parametrize(("lookahead", "tokens"), [(0, (2, 4, 6)), (1, (3, 5, 7)), (3, (5, 7))])
def test_a_page_is_known_by_all_that_its_entries_are_made_of(lookahead, tokens):
    tree = cache(lookahead)
    freed, _ = tree.insert(TEXT, extended=6, pages=(1, 2, 3, 4), locked=())
    assert pages(tree) == {TEXT[:count]: page for page, count in enumerate(tokens, start=1)}
    assert freed == (4,) if len(tokens) == 3 else (3, 4)


def test_a_text_of_thousands_of_pages_is_known_as_well():
    text = tuple(range(3000))
    tree = PrefixCache(page_size=1, lookahead=1, keeps=True)
    tree.insert(text, extended=2999, pages=tuple(range(1, 3001)), locked=())
    assert max(pages(tree), key=len) == text


@pytest.mark.parametrize(("lookahead", "count", "found"), [(0, 6, 2), (0, 7, 3), (1, 6, 2), (1, 7, 3), (3, 6, 1)])
def test_at_least_the_last_token_is_left_to_run(lookahead, count, found):
    tree = cache(lookahead)
    tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    assert [node.page for node in tree.match(TEXT[:count], 99)] == [1, 2, 3][:found]


def test_texts_part_behind_a_page_only_where_the_draft_looks_ahead():
    for lookahead, served in ((0, 2), (1, 1)):
        tree = cache(lookahead)
        tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
        assert len(tree.match((*TEXT[:4], 99, 98), 99)) == served


def test_a_copy_of_a_page_is_freed_and_the_first_one_kept():
    tree = cache()
    tree.insert(TEXT, extended=4, pages=(1, 2), locked=())
    assert tree.insert(TEXT, extended=6, pages=(7, 8, 9), locked=())[0] == (7, 8)
    assert sorted(pages(tree).values()) == [1, 2, 9]


def test_pages_that_were_served_stay_though_their_request_was_never_extended():
    tree = cache(lookahead=1)
    tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    path = tree.match(TEXT, 99)
    tree.lock(path)
    assert tree.insert(TEXT, extended=0, pages=(1, 2, 3, 4), locked=path) == ((4,), path)
    assert sorted(pages(tree).values()) == [1, 2, 3]


def test_leaves_that_nobody_runs_on_are_evicted_the_least_recently_used_first():
    tree = cache()
    tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    tree.insert((5, 6, 1, 2), extended=4, pages=(4, 5), locked=())
    path = tree.match((5, 6, 7, 8, 0), 99)
    tree.lock(path)
    assert tree.evictable == 2
    assert tree.evict(2) == Evicted((3, 5))
    tree.check([path])
    assert tree.insert((5, 6, 7, 8, 0), extended=0, pages=(1, 2), locked=path) == ((), path)
    assert tree.evict(2) == Evicted((2, 1))
    assert pages(tree) == {}


def test_locks_that_nobody_holds_are_named():
    tree = cache()
    tree.insert(TEXT, extended=4, pages=(1, 2), locked=())
    tree.lock(tree.match(TEXT, 99))
    with pytest.raises(RuntimeError, match="has 1 locks"):
        tree.check([])


def test_a_cache_that_keeps_nothing_finds_nothing():
    tree = PrefixCache(page_size=2, lookahead=0, keeps=False)
    assert tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=()) == ((1, 2, 3), ())
    assert tree.match(TEXT, 99) == ()


def test_pages_of_a_request_that_goes_on_are_kept_and_locked_as_they_become_final():
    tree = cache(lookahead=2)
    path = tree.keep(TEXT, 3, (1, 2, 3), ())
    assert [(node.page, node.locks) for node in path] == [(1, 1)]
    path = tree.keep(TEXT, 5, (1, 2, 3), path)
    assert [node.page for node in path] == [1, 2]
    tree.check([path])
    assert tree.evictable == 0


def test_behind_a_copy_nothing_is_kept_until_the_pages_are_given_back():
    tree = cache()
    tree.insert(TEXT, extended=2, pages=(1,), locked=())
    assert tree.keep(TEXT, 6, (7, 8, 9), ()) == ()
    freed, path = tree.insert(TEXT, extended=6, pages=(7, 8, 9), locked=())
    assert freed == (7,)
    assert [node.page for node in path] == [1, 8, 9]


def hybrid(slots: int = 2) -> PrefixCache:
    return PrefixCache(page_size=2, lookahead=0, keeps=True, checkpoints=StateSlots(range(5, 5 + slots)))


@pytest.mark.parametrize(("tokens", "slot"), [(0, 0), (2, 5), (3, 0), (4, 5), (8, 0)])
def test_a_state_is_kept_at_the_end_of_a_page_that_is_kept(tokens, slot):
    tree = hybrid()
    _, path = tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    assert tree.keep_state(path, tokens) == slot
    assert [node.page for node in tree.match(TEXT, 99)] == [1, 2, 3][: tokens // 2 if slot else 0]


def test_a_page_has_one_state_and_the_least_recently_used_one_gives_way():
    tree = hybrid()
    _, path = tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    assert [tree.keep_state(path, tokens) for tokens in (2, 2, 4)] == [5, 0, 6]
    tree.lock(tree.match(TEXT[:3], 99))
    assert tree.keep_state(path, 6) == 6
    assert [node.checkpoint for node in path] == [5, 0, 6]
    assert hybrid(0).keep_state(path, 4) == 0


def test_a_state_goes_with_its_page_and_no_slot_is_lost():
    tree = hybrid()
    _, path = tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    tree.keep_state(path, 6)
    assert tree.evict(1) == Evicted((3,), (5,))
    tree.check([])
    path[0].checkpoint = 9
    with pytest.raises(RuntimeError, match="slots out of balance: 2 free, 1 used, 2 in all"):
        tree.check([])


def test_what_was_used_last_stays_however_often_something_was_used_before():
    """More often than any scenario uses something, and than a counter of 16 bits counts."""
    tree = cache()
    tree.insert((1, 2, 0), extended=2, pages=(1,), locked=())
    tree.insert((3, 4, 0), extended=2, pages=(2,), locked=())
    often, once = tree.match((1, 2, 0), 99), tree.match((3, 4, 0), 99)
    for _ in range(1 << 16):
        tree.lock(often)
        tree.insert((1, 2, 0), extended=0, pages=(1,), locked=often)
    tree.lock(once)
    tree.insert((3, 4, 0), extended=0, pages=(2,), locked=once)
    assert tree.evict(1) == Evicted((1,))
