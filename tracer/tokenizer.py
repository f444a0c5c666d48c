"""A byte-level tokenizer: a byte is its id, and the ids behind are special, but for the last.

That is two bytes 255, which no UTF-8 has: llama.cpp and OpenVINO read no vocabulary without a merge.
"""

from __future__ import annotations

from typing import Any

from draftproof.tracer.program import BOS, BYTES, END, VOCABULARY

SPECIAL = {BOS: "<s>", END: "</s>"}
_MERGED = VOCABULARY - 1


def _letters() -> list[str]:
    """Return the letter that stands for each byte in byte-level vocabularies: itself if it can be printed."""
    printed = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(BYTES) if byte not in printed]
    return [chr(byte if byte in printed else BYTES + others.index(byte)) for byte in range(BYTES)]


def tokenizer_files() -> dict[str, Any]:
    """Return the files of the tokenizer by name, as objects of JSON."""
    special = {i: SPECIAL.get(i, f"<special {i}>") for i in range(BYTES, _MERGED)}
    letters = _letters()
    twice = letters[-1] + letters[-1]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    begin, text = {"SpecialToken": {"id": SPECIAL[BOS], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": i, "content": name, **flags} for i, name in special.items()],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [begin, text],
                "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {SPECIAL[BOS]: {"id": SPECIAL[BOS], "ids": [BOS], "tokens": [SPECIAL[BOS]]}},
            },
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": {
                    **{letter: byte for byte, letter in enumerate(letters)},
                    **{name: i for i, name in special.items()},
                    twice: _MERGED,
                },
                "merges": [" ".join(twice)],
            },
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[BOS],
            "eos_token": SPECIAL[END],
            "clean_up_tokenization_spaces": False,
            "model_max_length": 1 << 20,
        },
    }
