"""Our folders are installed under one name: a distribution called `kernels` (Hugging Face's) and ours live together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORKED = """
import os, sys
import {before}

def run(cwd, path, code):
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.chdir(cwd)
    sys.path[:0] = path
    exec(code, {{"__name__": "__main__"}})
    sys.stdout.flush()
    os._exit(0)

sys.exit(any([run(*one) for one in {runs!r}]))
"""
PROBE = """
import importlib.metadata, importlib.util, json, sys
{first}
{second}
print(json.dumps({{
    "theirs": [kernels.__file__, kernels.marker, importlib.metadata.version("kernels")],
    "ours": draftproof.kernels.__file__,
}}))
"""


def printed(before: str, *runs: tuple[Path, list[str], str]) -> list[str]:
    """What programs print, each in a folder and with these first on its path; `before`: what all of them imported.

    The programs are forked from one interpreter, since those imports take long. They are none of what is tested.
    """
    # -P: as under pytest and for an installed command, the current folder is not on the path.
    program = FORKED.format(before=before, runs=[(str(cwd), path, code) for cwd, path, code in runs])
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder that looks as if pip had installed Hugging Face's kernels there."""
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text("marker = 'hugging face'\n")
    info = tmp_path / "kernels-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 9.9\n")
    return tmp_path


ORDERS = (("import kernels", "import draftproof.kernels"), ("import draftproof.kernels", "import kernels"))


def test_both_kernels_import_as_themselves(fake):
    """In either order, elsewhere and in the root of the repository."""
    runs = [
        (cwd, [str(fake)], PROBE.format(first=first, second=second)) for cwd in (fake, ROOT) for first, second in ORDERS
    ]
    found = [json.loads(line) for line in printed("torch", *runs)]
    assert len(found) == 4
    for one in found:
        assert one["theirs"] == [str(fake / "kernels" / "__init__.py"), "hugging face", "9.9"]
        assert one["ours"].replace("\\", "/").endswith("kernels/__init__.py")
        assert one["ours"] != one["theirs"][0]


def test_without_theirs_there_is_no_top_level_kernels():
    code = "import importlib.util, draftproof.kernels; print(importlib.util.find_spec('kernels'))"
    assert printed("torch", (ROOT, [], code)) == ["None"]


def test_transformers_is_not_taken_in_by_our_folder():
    """With the root of the repository on the path; a model is imported without it by every test that has one."""
    lines = (
        "import draftproof.kernels",
        "from transformers.utils.import_utils import is_kernels_available",
        "{}",
        "print(is_kernels_available(), {})",
    )
    of_model = "\n".join(lines).format("from transformers import LlamaForCausalLM", "LlamaForCausalLM.__name__")
    runs = [(ROOT, [""], of_model), (ROOT, [], "\n".join(lines).format("", ""))]
    assert printed("torch", *runs) == ["False LlamaForCausalLM", "False"]


def test_every_package_is_listed():
    """A folder with Python that pyproject.toml does not name would be missing from a wheel."""
    import tomllib

    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    rooms = ("engine", "faults", "fuzz", "harness", "kernels", "properties", "reference", "report", "subjects")
    for folder in (*rooms, "draftproof"):
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            assert ".".join(parts if parts[0] == "draftproof" else ("draftproof", *parts)) in listed
