"""`draftproof lab kernels check`: kernels of one's own, and what it is told wrongly."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from draftproof.cli.app import run

OWN = """
import os, time
from draftproof.properties.formats.kernel_binding import binding

def last_token(bonus, tokens, accept_lens):
    for b, count in enumerate(accept_lens.tolist()):
        bonus[b] = tokens[b, count - 1]

def one_behind(bonus, tokens, accept_lens):
    for b, count in enumerate(accept_lens.tolist()):
        bonus[b] = tokens[b, min(count, tokens.shape[1] - 1)]

def dies(bonus, tokens, accept_lens):
    os.abort()

def hangs(bonus, tokens, accept_lens):
    time.sleep(60)

def refuses(bonus, tokens, accept_lens):
    raise ValueError("no more than two tokens")

@binding("bonus_tokens", "sys", kernel="intern")
def wrong_shape(kernel, bonus, tokens, accept_lens):
    bonus.copy_(tokens.new_zeros(len(bonus) + 2))

@binding("bonus_tokens", layout={"tokens": "10"}, int32=("bonus",), limit=lambda bonus, tokens, lens: len(bonus) > 1)
def laid_out(bonus, tokens, accept_lens):
    assert tokens.stride()[0] == 1 and str(bonus.dtype) == "torch.int32" and len(bonus) > 1
    last_token(bonus, tokens, accept_lens)

@binding("bonus_tokens", layout={"bonus": "01"})
def another_rank(bonus, tokens, accept_lens):
    last_token(bonus, tokens, accept_lens)

@binding("bonus_tokens", given=lambda bonus, tokens, lens: {"tokens": tokens[:1, :1, None]})
def given_too_small(bonus, tokens, accept_lens):
    last_token(bonus, tokens, accept_lens)

@binding("bonus_tokens", undefined=lambda bonus, tokens, lens: {"bonus": (tokens == 0).flatten().repeat(9)})
def a_mask_too_long(bonus, tokens, accept_lens):
    last_token(bonus, tokens, accept_lens)

@binding("bonus_tokens", limit=lambda bonus: True)
def limit_of_one(bonus, tokens, accept_lens):
    last_token(bonus, tokens, accept_lens)

@binding("bonus_tokens", "no_module_of_this_name")
def nowhere(kernel, bonus, tokens, accept_lens):
    kernel(bonus, tokens, accept_lens)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of an importable module with kernels."""
    (tmp_path / "own_kernels.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", os.environ.get("TRITON_INTERPRET", "0"))
    return "own_kernels"


def checked(tmp_path: Path, *words: str) -> tuple[int, dict]:
    """Return the exit code, and what is said of the one kernel."""
    file = tmp_path / "report.json"
    code = run(["lab", "kernels", "check", *words, "--examples", "6", "--workers", "1", "--json", str(file)])
    ((release,),) = (json.loads(file.read_text())["releases"],)
    (kernel,) = release["kernels"]
    return code, kernel


def test_verdicts_of_kernels_of_ones_own(own, tmp_path, capsys):
    name = f"{own}:last_token"
    code, kernel = checked(tmp_path, "--impl", name, "--op", "bonus_tokens")
    assert (code, kernel["verdict"], kernel["calls"]) == (0, "PASS", 6)
    assert (
        f"Again: draftproof lab kernels check --examples 6 --impl {name} --op bonus_tokens" in capsys.readouterr().out
    )
    code, kernel = checked(tmp_path, "--impl", f"{own}:one_behind", "--op", "bonus_tokens")
    assert (code, kernel["verdict"], kernel["first"]["channel"]) == (1, "FAIL", "kernel.bonus")
    assert "FAIL kernel.bonus_tokens  one_behind" in capsys.readouterr().out
    code, kernel = checked(tmp_path, "--impl", f"{own}:laid_out")
    assert (code, kernel["verdict"]) == (0, "PASS")
    assert kernel["left_out"]


def test_a_crash_and_a_hang_are_verdicts(own, tmp_path, capsys):
    code, kernel = checked(tmp_path, "--impl", f"{own}:dies", "--op", "bonus_tokens")
    assert (code, kernel["verdict"]) == (3, "CRASH")
    assert kernel["reason"].startswith("call 1 of ?: SIGABRT")
    code, kernel = checked(tmp_path, "--impl", f"{own}:hangs", "--op", "bonus_tokens", "--timeout", "4")
    assert (code, kernel["verdict"]) == (4, "HANG")
    code, kernel = checked(tmp_path, "--impl", f"{own}:refuses", "--op", "bonus_tokens")
    assert (code, kernel["verdict"]) == (3, "CRASH")
    assert kernel["reason"] == "call 1 of 6: ValueError: no more than two tokens"


def test_what_a_binding_does_wrong_is_an_error(own, tmp_path):
    code, kernel = checked(tmp_path, "--impl", f"{own}:wrong_shape")
    assert (code, kernel["verdict"]) == (2, "ERROR")
    assert kernel["reason"].startswith("invalid call of binding wrong_shape, line 24: RuntimeError: ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "another_rank",
            "invalid layout 'bonus=01' of binding another_rank: expected each of the dimensions 0 of bonus",
        ),
        ("given_too_small", "invalid given 'tokens of shape [1, 1, 1]' of binding given_too_small: expected one of ["),
        ("a_mask_too_long", "of binding a_mask_too_long: expected a mask of its elements or rows, of ["),
        (
            "limit_of_one",
            "of binding limit_of_one: expected a function of bonus, tokens, accept_lens that raises nothing",
        ),
    ],
)
def test_a_binding_with_a_wrong_shape_is_an_error(name, said, own, tmp_path):
    code, kernel = checked(tmp_path, "--impl", f"{own}:{name}")
    assert (code, kernel["verdict"]) == (2, "ERROR")
    assert said in kernel["reason"]


def test_a_kernel_whose_module_cannot_be_imported_says_nothing(own, tmp_path):
    code, kernel = checked(tmp_path, "--impl", f"{own}:nowhere")
    assert (code, kernel["verdict"]) == (125, "INCONCLUSIVE")
    assert kernel["reason"].startswith("no_module_of_this_name cannot be imported: ModuleNotFoundError: ")


@pytest.mark.parametrize(
    ("command", "line", "code", "said"),
    [
        ("check", "sys.exit(0)", 2, "error: invalid --impl 'leaving': expected MODULE:NAME with a module that can be"),
        ("faults", "os._exit(0)", 2, "SystemExit: os._exit(0)"),
        ("check", "ctypes.CDLL(None)._exit(0)", 3, "CRASH: the process of the command ended (exit 0) before"),
    ],
)
def test_a_module_that_leaves_when_it_is_imported_ends_no_command_in_green(command, line, code, said, tmp_path):
    (tmp_path / "leaving.py").write_text(f"import ctypes, os, sys\n{line}\n")
    words = ["lab", "kernels", command, "--impl", "leaving"]
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from draftproof.cli import main; main({words})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


WRONG = {
    "op": ('op="bonus_token"', "invalid op 'bonus_token' of binding mine: expected one of"),
    "layout": (
        'op="bonus_tokens", layout={"tokns": "01"}',
        "invalid layout 'tokns' of binding mine: expected arguments",
    ),
    "invalid": ('op="bonus_tokens", invalid={"tokens": -1}', "expected arguments of bonus_tokens: none, the op has no"),
    "rank": ('op="bonus_tokens", layout={"bonus": 0}', "invalid layout 'bonus=0' of binding mine: expected text, such"),
    "dtypes": ('op="gdn_update", dtypes=("float33",)', "invalid dtypes 'float33' of binding mine: expected names of"),
    "draws": (
        'op="kv_move", draws={"aim": 1}',
        "invalid draws 'aim' of binding mine: expected arguments of kv_move",
    ),
    "word": (
        'op="bonus_tokens", strides={}',
        "invalid argument 'strides' of a binding of bonus_tokens: expected dtypes,",
    ),
    "call": ('op="extend_slots"', "invalid call 'bonus, tokens, accept_lens' of binding mine: expected slots, table,"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_binding_is_told(name, tmp_path, monkeypatch, capsys):
    words, said = WRONG[name]
    lines = ["from draftproof.properties.formats.kernel_binding import binding", f"@binding({words})"]
    lines += ["def mine(bonus, tokens, accept_lens):", "    pass"]
    (tmp_path / f"wrong_{name}.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["lab", "kernels", "check", "--impl", f"wrong_{name}:mine"]) == 2
    assert said in capsys.readouterr().err


def test_wrong_words_are_told(own, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def said(*words: str) -> str:
        assert run(["lab", "kernels", "check", *words]) == 2
        return capsys.readouterr().err

    assert "invalid --op 'bonus_token': expected one of" in said("--impl", own, "--op", "bonus_token")
    assert " ops: accept_tree, add_rms_norm, " in said("--impl", own, "--op", "none_of_them")
    assert "own_kernels has no laid_ot; did you mean laid_out?" in said("--impl", f"{own}:laid_ot")
    assert "own_kernels has no fill; its bindings are wrong_shape, laid_out," in said("--impl", f"{own}:fill")
    assert "invalid --impl 'nowhere': expected MODULE:NAME with a module that" in said("--impl", "nowhere")
    assert "or with --op a function" in said("--impl", f"{own}:last_token")
    none = tmp_path / "sglang-0.5.9-py3-none-any.whl"
    none.write_text("none")
    assert "expected a zip archive" in said("--impl", "sglang", "--wheel", str(none))
    other = tmp_path / "numpy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("numpy-1.0.dist-info/METADATA", "Name: numpy\nVersion: 1.0\n")
    assert "expected one of sglang, not of numpy" in said("--impl", "sglang", "--wheel", str(other))
    assert "expected wheels of sglang in it" in said("--impl", "sglang", "--wheels", str(tmp_path / "cli"))
    assert "not kernels of your own" in said("--impl", f"{own}:laid_out", "--wheel", str(other))


@pytest.mark.parametrize(
    "words", [("last_tokens", "--op", "bonus_tokens"), ("packed_last_tokens",)], ids=lambda w: w[0]
)
def test_the_kernels_of_the_example_hold(words, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parent.parent.parent / "examples")
    monkeypatch.setenv("TRITON_INTERPRET", os.environ.get("TRITON_INTERPRET", "0"))
    code, kernel = checked(tmp_path, "--impl", f"own_kernel:{words[0]}", *words[1:])
    assert (code, kernel["verdict"], kernel["calls"]) == (0, "PASS", 6)


@pytest.mark.parametrize("before", ["0", None])
def test_the_process_interprets_no_longer_than_the_command(before: str | None, monkeypatch: pytest.MonkeyPatch):
    """What this process starts later would run kernels of ours in the interpreter, too."""
    if before is None:
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    else:
        monkeypatch.setenv("TRITON_INTERPRET", before)
    assert run(["lab", "kernels", "check", "--impl", "no_such_module"]) == 2
    assert os.environ.get("TRITON_INTERPRET") == before
