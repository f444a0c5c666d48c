"""examples/tracer_to_gguf.py, with a converter that knows no tokenizer."""

import json
import subprocess
import sys
from pathlib import Path

from tokenizers import Tokenizer

from draftproof.tracer.build import build

SCRIPT = Path(__file__).parents[2] / "examples/tracer_to_gguf.py"


def converted(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)


def test_the_converter_is_told_how_text_is_split(tmp_path: Path):
    (tmp_path / "conversion").mkdir()
    (tmp_path / "conversion/base.py").write_text(
        "class TextModel:\n    def get_vocab_base_pre(self, tokenizer):\n        raise NotImplementedError\n"
    )
    (tmp_path / "convert_hf_to_gguf.py").write_text(
        "import sys\nfrom conversion.base import TextModel\n"
        "if __name__ == '__main__':\n    print(TextModel().get_vocab_base_pre(None), *sys.argv[1:])\n"
    )
    done = converted(tmp_path, "tracer", "--outtype", "f16")
    assert (done.returncode, done.stdout) == (0, "gpt-2 tracer --outtype f16\n"), done.stderr


def test_what_is_no_checkout_is_refused(tmp_path: Path):
    assert "expected a checkout of llama.cpp" in converted(tmp_path, "tracer").stderr
    assert "expected LLAMA_CPP" in converted().stderr


def test_a_vocabulary_has_a_merge_that_no_text_has(tmp_path: Path):
    build(tmp_path / "tracer", "llama", length=64)
    file = tmp_path / "tracer/tokenizer.json"
    assert len(json.loads(file.read_text())["model"]["merges"]) == 1
    tokenizer = Tokenizer.from_file(str(file))
    assert tokenizer.get_vocab_size() == 320
    text = "".join(map(chr, range(0x20, 0x2000)))
    assert tokenizer.encode(text, add_special_tokens=False).ids == [*text.encode()]
    assert tokenizer.decode([319], skip_special_tokens=False) == "\ufffd\ufffd"
