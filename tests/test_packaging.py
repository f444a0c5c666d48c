"""Our folders are installed under one name: a distribution called `kernels` (Hugging Face's) and ours live together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROBE = """
import importlib.metadata, importlib.util, json, sys
{first}
{second}
print(json.dumps({{
    "theirs": [kernels.__file__, kernels.marker, importlib.metadata.version("kernels")],
    "ours": draftproof.kernels.__file__,
}}))
"""


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


def probe(fake: Path, cwd: Path, first: str, second: str) -> dict[str, object]:
    code = PROBE.format(first=first, second=second)
    # -P: as under pytest and for an installed command, the current folder is not on the path.
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(fake)!r})\n{code}"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("at_root", [False, True], ids=["elsewhere", "repository root"])
@pytest.mark.parametrize("order", [1, -1], ids=["theirs first", "ours first"])
def test_both_kernels_import_as_themselves(fake, at_root, order):
    lines = ["import kernels", "import draftproof.kernels"][::order]
    found = probe(fake, ROOT if at_root else fake, *lines)
    assert found["theirs"] == [str(fake / "kernels" / "__init__.py"), "hugging face", "9.9"]
    assert str(found["ours"]).replace("\\", "/").endswith("kernels/__init__.py")
    assert found["ours"] != found["theirs"][0]  # type: ignore[index]


def test_without_theirs_there_is_no_top_level_kernels():
    code = "import importlib.util, draftproof.kernels; print(importlib.util.find_spec('kernels'))"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "None", done.stdout + done.stderr


@pytest.mark.parametrize("flags", [[], ["-P"]], ids=["root on the path", "root off the path"])
def test_transformers_is_not_taken_in_by_our_folder(flags):
    lines = (
        "import draftproof.kernels",
        "from transformers.utils.import_utils import is_kernels_available",
        "from transformers import LlamaForCausalLM",
        "print(is_kernels_available(), LlamaForCausalLM.__name__)",
    )
    command = [sys.executable, *flags, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "LlamaForCausalLM"], done.stdout + done.stderr


def test_every_package_is_listed():
    """A folder with Python that pyproject.toml does not name would be missing from a wheel."""
    import tomllib

    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    rooms = ("engine", "faults", "fuzz", "harness", "kernels", "properties", "reference", "report", "subjects")
    for folder in (*rooms, "draftproof"):
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            assert ".".join(parts if parts[0] == "draftproof" else ("draftproof", *parts)) in listed
