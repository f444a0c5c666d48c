"""llama.cpp build 11434: requests that are served together are drafted each other's tokens.

    llama-server -m TARGET.gguf -md HEAD.gguf --spec-type draft-eagle3 --spec-draft-n-max 3 -fa off -np 4 -c 4096
    python examples/found/llama_cpp_slots.py http://localhost:8080

The texts are right. Drafts are sampled in the graph by default: `build_sampling`
(src/llama-graph.cpp) makes the result of a slot an output of the graph only where the slot takes part. The allocator
(`ggml_gallocr_needs_realloc`, ggml/src/ggml-alloc.c) keeps a plan of memory while nodes and sizes are the same, and
looks at no flags. So a plan for fewer slots serves a step with more of them, whose `top_k` then have the same memory.
With `--no-spec-draft-backend-sampling` both lines are the same.
"""

import json
import sys
import threading
from urllib.request import Request, urlopen

PROMPTS = [[256, *b"Once upon a time there was a king, and he had a daughter"[:length]] for length in (10, 55, 30, 21)]


def accepted(url, prompt):
    """Return the tokens of a greedy answer, and how many drafts were accepted."""
    asked = {"prompt": prompt, "n_predict": 48, "temperature": 0, "return_tokens": True, "ignore_eos": True}
    body = json.dumps({**asked, "cache_prompt": False}).encode()
    with urlopen(Request(f"{url}/completion", body, {"Content-Type": "application/json"})) as answer:
        told = json.load(answer)
    return told["tokens"], told["timings"].get("draft_n_accepted")


def main(url):
    alone, together = [accepted(url, prompt) for prompt in PROMPTS], {}
    threads = [
        threading.Thread(target=lambda i=i, prompt=prompt: together.update({i: accepted(url, prompt)}))
        for i, prompt in enumerate(PROMPTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("the same texts:", all(tokens == together[i][0] for i, (tokens, _) in enumerate(alone)))
    print("accepted drafts, alone:   ", [count for _, count in alone])
    print("accepted drafts, together:", [together[i][1] for i in range(len(PROMPTS))])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8080")
