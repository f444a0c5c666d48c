"""The front matter of a fault: an error names the file, the line or field, the value and what is allowed."""

from pathlib import Path

import pytest

from draftproof.faults.catalogue import FaultFile, catalogue, read_fault
from draftproof.faults.named import validate_names
from draftproof.faults.patching import PatchError
from draftproof.faults.run import run_faults

CHANGE = "engine/walk.py\n-    y = x * 2\n+    y = x * 3\n"


def read(folder: Path, *lines: str) -> FaultFile:
    """The fault with these lines as its front matter, in a file that an error begins with."""
    path = folder / "bad.fault"
    path.write_text("\n".join(("+++", *lines, "+++", CHANGE)))
    return read_fault(path)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (('id = "bad"', 'chanel = "x"'), "invalid field 'chanel': expected id, "),
        (('smoke = "yes"',), "invalid smoke 'yes': expected true or false"),
        (("contract = 3",), "invalid contract 3: expected a text in quotes"),
        (('id = ["bad"]',), "invalid id ['bad']: expected a text in quotes"),
        (('model = "lama"',), "invalid model 'lama': expected llama, llama-fp8, "),
        (('draft = "medusa"',), "invalid draft 'medusa': expected eagle, mtp, dflash, ngram, standalone, eagle3, all"),
        (("draft = 3",), "invalid draft 3: expected eagle, "),
        (('draft = ["mtp"]',), "invalid draft ['mtp']: expected eagle, "),
        (('id = "bad"', "smoke = yes"), "invalid line 3 'smoke = yes': expected TOML: invalid value in column 9"),
        (('id = "bad"', "", 'source = "a'), "invalid line 4 'source = \"a': expected TOML: illegal character '\\n' in"),
        (('id = "a"', "id = 'b'"), "invalid line 3 \"id = 'b'\": expected TOML: cannot overwrite a value in column"),
        (('id = "a', 'b"'), "invalid line 2 "),
        (("source = [1,",), "invalid line 3 '+++': expected TOML: "),
    ],
)
def test_an_error_begins_with_the_file_and_names_what_is_allowed(lines: tuple[str, ...], told: str, tmp_path: Path):
    with pytest.raises(PatchError) as raised:
        read(tmp_path, *lines)
    assert str(raised.value).startswith(f"{tmp_path / 'bad.fault'}: {told}")


def test_a_front_matter_without_its_end_is_named_with_its_file(tmp_path: Path):
    path = tmp_path / "open.fault"
    path.write_text(f'+++\nid = "open"\n{CHANGE}')
    with pytest.raises(PatchError) as raised:
        read_fault(path)
    assert str(raised.value).startswith(f"{path}: invalid line 1 '+++': expected another line +++ below it")


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ('draft = "eagel"', "eagle"),
        ('model = "lama"', "llama"),
        ('model = "qwen3-nxt"', "qwen3-next"),
        ("smok = 1", "smoke"),
    ],
)
def test_what_is_nearly_a_name_is_suggested(line: str, near: str, tmp_path: Path):
    with pytest.raises(PatchError, match=rf"; did you mean {near}\?$"):
        read(tmp_path, line)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ('contract = "draft.position"',),
            "invalid contract 'draft.position': expected a contract of `draftproof check`; did you mean"
            " draft.positions?",
        ),
        (
            ('channel = "verify.posit"',),
            "invalid channel 'verify.posit': expected one of docs/semantics/channels.md, or kernel.*; did you mean"
            " verify.positions?",
        ),
        (
            ('contract = "draft.proposed"', 'channel = "propose.match"'),
            "invalid channel 'propose.match' of contract 'draft.proposed', which has no such channel: expected"
            " draft.match or variant.*",
        ),
        (
            ('contract = "draft.positions"', 'channel = "kernel.out"'),
            "invalid channel 'kernel.out' of contract 'draft.positions', which has no such channel: expected a contract"
            " kernel.*",
        ),
        (
            ('contract = "kernel.rope"', 'channel = "accept.bonus"'),
            "invalid channel 'accept.bonus' of contract 'kernel.rope', which has no such channel: expected"
            " accept.greedy, memory.bounds, tensor.decisions or variant.*",
        ),
        (
            ('contract = "HANG"', 'channel = "commit.length"'),
            "invalid channel 'commit.length' of contract 'HANG', which has no such channel: expected commit.length",
        ),
    ],
)
def test_a_contract_and_its_channel_are_there_and_belong_together(lines: tuple[str, ...], told: str, tmp_path: Path):
    with pytest.raises(PatchError) as raised:
        run_faults([read(tmp_path, *lines)], (0,), 1)
    assert str(raised.value).startswith(f"{tmp_path / 'bad.fault'}: {told}")


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ('contract = "draft.match"',),
        ('channel = "propose.match"',),
        ('contract = "variant.alone"', 'channel = "propose.match"'),
    ],
)
def test_a_part_of_the_name_or_none_is_enough(lines: tuple[str, ...], tmp_path: Path):
    validate_names(read(tmp_path, *lines))


def test_every_contract_of_the_catalogue_has_the_channel_that_is_named_with_it():
    for file in catalogue().values():
        validate_names(file)
