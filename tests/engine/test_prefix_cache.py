"""The tree of a prefix cache: what it finds, keeps, locks and evicts."""

import pytest

from draftproof.engine.prefix_cache import PrefixCache

TEXT = (5, 6, 7, 8, 9, 10, 11)


def cache(lookahead: int = 0) -> PrefixCache:
    return PrefixCache(page_size=2, lookahead=lookahead, keeps=True)


def pages(of: PrefixCache) -> dict[tuple[int, ...], int]:
    return {of.prefix(node): node.page for node in of.nodes()}


@pytest.mark.parametrize(("lookahead", "tokens"), [(0, (2, 4, 6)), (1, (3, 5, 7)), (3, (5, 7))])
def test_a_page_is_known_by_all_that_its_entries_are_made_of(lookahead, tokens):
    tree = cache(lookahead)
    freed = tree.insert(TEXT, extended=6, pages=(1, 2, 3, 4), locked=())
    assert pages(tree) == {TEXT[:count]: page for page, count in enumerate(tokens, start=1)}
    assert freed == (4,) if len(tokens) == 3 else (3, 4)


@pytest.mark.parametrize(("lookahead", "count", "found"), [(0, 6, 2), (0, 7, 3), (1, 6, 2), (1, 7, 3), (3, 6, 1)])
def test_at_least_the_last_token_is_left_to_run(lookahead, count, found):
    tree = cache(lookahead)
    tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    assert [node.page for node in tree.match(TEXT[:count])] == [1, 2, 3][:found]


def test_texts_part_behind_a_page_only_where_the_draft_looks_ahead():
    for lookahead, served in ((0, 2), (1, 1)):
        tree = cache(lookahead)
        tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
        assert len(tree.match((*TEXT[:4], 99, 98))) == served


def test_a_copy_of_a_page_is_freed_and_the_first_one_kept():
    tree = cache()
    tree.insert(TEXT, extended=4, pages=(1, 2), locked=())
    assert tree.insert(TEXT, extended=6, pages=(7, 8, 9), locked=()) == (7, 8)
    assert sorted(pages(tree).values()) == [1, 2, 9]


def test_pages_that_were_served_stay_though_their_request_was_never_extended():
    tree = cache(lookahead=1)
    tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    path = tree.match(TEXT)
    tree.lock(path)
    assert tree.insert(TEXT, extended=0, pages=(1, 2, 3, 4), locked=path) == (4,)
    assert sorted(pages(tree).values()) == [1, 2, 3]


def test_leaves_that_nobody_runs_on_are_evicted_the_least_recently_used_first():
    tree = cache()
    tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=())
    tree.insert((5, 6, 1, 2), extended=4, pages=(4, 5), locked=())
    path = tree.match((5, 6, 7, 8, 0))
    tree.lock(path)
    assert tree.evictable == 2
    assert tree.evict(2) == (3, 5)
    tree.check([path])
    assert tree.insert((5, 6, 7, 8, 0), extended=0, pages=(1, 2), locked=path) == ()
    assert tree.evict(2) == (2, 1)
    assert pages(tree) == {}


def test_locks_that_nobody_holds_are_named():
    tree = cache()
    tree.insert(TEXT, extended=4, pages=(1, 2), locked=())
    tree.lock(tree.match(TEXT))
    with pytest.raises(RuntimeError, match="has 1 locks"):
        tree.check([])


def test_a_cache_that_keeps_nothing_finds_nothing():
    tree = PrefixCache(page_size=2, lookahead=0, keeps=False)
    assert tree.insert(TEXT, extended=6, pages=(1, 2, 3), locked=()) == (1, 2, 3)
    assert tree.match(TEXT) == ()
