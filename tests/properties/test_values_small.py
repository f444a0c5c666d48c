"""Durations, names and files, as every room reads and writes them."""

import os
import stat
from pathlib import Path

import pytest

from draftproof.properties.lib.durations import DurationError, parse_duration, show_duration
from draftproof.properties.lib.files import write_whole
from draftproof.properties.lib.names import did_you_mean, is_factory_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("60s", 60), ("1.5h", 5400), (" 10m ", 600), ("10 m", 600), ("2h", 7200), ("0.5m", 30)],
)
def test_durations_are_read(text: str, expected: float):
    assert parse_duration(text, "--time") == expected


@pytest.mark.parametrize("text", ["", "s", "10", "-1s", "0s", "1d", "1m30s", "inf", "10 min", "2000h", "1e3s", "٣s"])
def test_what_is_no_duration_is_named(text: str):
    with pytest.raises(DurationError, match=r"invalid --time .*: expected a number with a unit, as in 90s, 10m or 2h"):
        parse_duration(text, "--time")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (0.42, "0.42 s"), (12, "12 s"), (59.7, "1 min"), (185, "3 min 5 s"), (7800, "2 h 10 min")],
)
def test_durations_are_shown(seconds: float, expected: str):
    assert show_duration(seconds) == expected


@pytest.mark.parametrize("name", ["a:b", "a.b:C"])
def test_factory_names(name: str):
    assert is_factory_name(name)


@pytest.mark.parametrize("name", ["a", "a:", ":b", "a-b:c", "a:b:c", "a..b:c"])
def test_what_is_no_factory_name(name: str):
    assert not is_factory_name(name)


def test_the_nearest_name_is_proposed():
    assert did_you_mean("draft.position", ["draft.positions", "lossless"]) == "; did you mean draft.positions?"
    assert did_you_mean("xyz", ["draft.positions"]) == ""
    assert did_you_mean("gpu", ["cpu", "cuda"]) == ""
    assert did_you_mean("cu", ["cpu", "cuda"]) == "; did you mean cpu?"


def test_a_file_is_written_whole_in_a_folder_that_is_made(tmp_path: Path):
    path = tmp_path / "new" / "case.json"
    write_whole(path, "one\n")
    write_whole(path, "two\n")
    assert path.read_text() == "two\n"
    assert list(path.parent.iterdir()) == [path]
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old\n")
    link.symlink_to(real)
    write_whole(link, "new\n")
    assert link.is_symlink()
    assert real.read_text() == "new\n"


def test_a_pipe_is_written_to(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(path, "new\n")
    assert os.read(reader, 100) == b"new\n"
    os.close(reader)
    assert path.is_fifo()
