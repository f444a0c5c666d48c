"""What ranks have entered, as their parent and the others read it."""

from pathlib import Path

from draftproof.properties.formats.rank_journal import RankJournal

ROWS, MORE, ANOTHER = (1, 1, 2, 1), (2, 4, 6, 1), (2, 5, 6, 1)


def journal(folder: Path, *of_ranks: tuple[tuple[int, int, int, int], ...]) -> RankJournal:
    made = RankJournal(folder / "journal", len(of_ranks))
    for rank, entered in enumerate(of_ranks):
        for one in entered:
            made.enter(rank, one)
    return made


def test_ranks_part_where_two_differ_though_a_third_has_not_come(tmp_path: Path):
    assert journal(tmp_path, (ROWS, MORE), (ROWS, ANOTHER), (ROWS,)).parting() == 1


def test_ranks_that_have_come_less_far_have_not_parted(tmp_path: Path):
    assert journal(tmp_path, (ROWS, MORE), (ROWS, MORE), (ROWS,)).parting() is None
