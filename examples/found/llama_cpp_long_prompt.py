"""llama.cpp build 11434: between two batches of a prompt an EAGLE-3 head is given the state of the wrong token.

    llama-server -m TARGET.gguf -md HEAD.gguf --spec-type draft-eagle3 --spec-draft-n-max 3 -fa off -c 1024 --port 8001
    llama-server (the same) -b 64 -ub 64 --port 8002
    python examples/found/llama_cpp_long_prompt.py http://localhost:8001 http://localhost:8002

By default it takes a prompt of more than 2048 tokens. The row at the end of a batch waits for the next token.
`process` (common/speculative.cpp:766) then adds it with `pending_g_last`, which is not copied, and before anything runs
writes the state of the new batch's last token there (:782). Prompts of one batch are as they should be.
"""

import json
import sys
from urllib.request import Request, urlopen

ASKED = {"n_predict": 48, "temperature": 0, "return_tokens": True, "ignore_eos": True, "cache_prompt": False}


def accepted(url, prompt):
    """Return the tokens of a greedy answer, and how many drafts were accepted."""
    body = json.dumps({**ASKED, "prompt": prompt}).encode()
    with urlopen(Request(f"{url}/completion", body, {"Content-Type": "application/json"})) as answer:
        told = json.load(answer)
    return told["tokens"], told["timings"].get("draft_n_accepted")


def main(one, two):
    text = b"Once upon a time there was a king, and he had a daughter. " * 5
    for length in (60, 64, 65, 70, 128, 129, 150, 200):
        prompt = [256, *text[: length - 1]]
        (left, whole), (right, cut) = accepted(one, prompt), accepted(two, prompt)
        print(f"{length} tokens: the same text: {left == right}; accepted in one batch {whole}, in several {cut}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
