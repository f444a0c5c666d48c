"""Our folders are installed under one name: a distribution called `kernels` (Hugging Face's) and ours live together."""

import json
import sys
from pathlib import Path

import pytest

from tests.warm import Warm

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


def printed(warm: Warm, code: str, folder: Path, path: Path | None = None) -> str:
    """What a program prints, in a folder and with another first on its path, if any; the imports are what is tested."""
    # -P: as under pytest and for an installed command, the current folder is not on the path.
    more = {} if path is None else {"PYTHONPATH": str(path)}
    done = warm.run([sys.executable, "-P", "-c", code], folder, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


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


@pytest.mark.parametrize(("first", "second"), ORDERS)
def test_both_kernels_import_as_themselves(fake, warm, first, second):
    """In either order, elsewhere and in the root of the repository."""
    for folder in (fake, ROOT):
        found = json.loads(printed(warm, PROBE.format(first=first, second=second), folder, fake))
        assert found["theirs"] == [str(fake / "kernels" / "__init__.py"), "hugging face", "9.9"]
        assert found["ours"].replace("\\", "/").endswith("kernels/__init__.py")
        assert found["ours"] != found["theirs"][0]


def test_without_theirs_there_is_no_top_level_kernels(warm):
    code = "import importlib.util, draftproof.kernels; print(importlib.util.find_spec('kernels'))"
    assert printed(warm, code, ROOT) == "None"


def test_transformers_is_not_taken_in_by_our_folder(warm):
    """Nor with the root of the repository on the path, when it imports a model."""
    lines = (
        "import draftproof.kernels",
        "from transformers.utils.import_utils import is_kernels_available",
        "{}",
        "print(is_kernels_available(), {})",
    )
    of_model = "\n".join(lines).format("from transformers import LlamaForCausalLM", "LlamaForCausalLM.__name__")
    assert printed(warm, of_model, ROOT, ROOT) == "False LlamaForCausalLM"
    assert printed(warm, "\n".join(lines).format("", ""), ROOT) == "False"


def test_every_package_is_listed():
    """A folder with Python that pyproject.toml does not name would be missing from a wheel."""
    import tomllib

    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    rooms = ("engine", "faults", "fuzz", "harness", "kernels", "properties", "reference", "report", "subjects")
    for folder in (*rooms, "tracer", "draftproof"):
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            assert ".".join(parts if parts[0] == "draftproof" else ("draftproof", *parts)) in listed
