"""Write a tracer checkpoint as GGUF with llama.cpp's own converter, which refuses tokenizers that it does not know.

    python examples/tracer_to_gguf.py LLAMA_CPP DIR --outtype f16 --outfile tracer.gguf

LLAMA_CPP is a checkout, and its converter needs torch, transformers and sentencepiece. Prompts of a tracer are token
ids, so no text is ever split, and any name of a way to split it will do. Seen with build 11434 of llama.cpp.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main(checkout: Path, arguments: list[str]) -> None:
    """Run the converter with arguments of its own."""
    script = checkout / "convert_hf_to_gguf.py"
    if not script.is_file():
        sys.exit(f"invalid LLAMA_CPP '{checkout}': expected a checkout of llama.cpp, with convert_hf_to_gguf.py")
    sys.path[:0] = [str(checkout), str(checkout / "gguf-py")]
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda model, tokenizer: "gpt-2"
    sys.argv[:] = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("expected LLAMA_CPP, the directory of a tracer and options of convert_hf_to_gguf.py")
    main(Path(sys.argv[1]), sys.argv[2:])
