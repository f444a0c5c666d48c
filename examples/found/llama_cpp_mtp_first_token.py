"""llama.cpp build 11434: an MTP layer pairs a prompt's first token with a state that the last request left.

    llama-server -m TARGET.gguf --spec-type draft-mtp --spec-draft-n-max 3 -fa off -np 1 -c 512
    python examples/found/llama_cpp_mtp_first_token.py http://localhost:8080

Row p of an MTP layer has the token at p and the target's state of the token before, so there is none of the first
token. `common_speculative_impl_draft_mtp::process` (common/speculative.cpp:1584) runs one with `pending_h`, which are
zeros at the start and what the slot's last request left from then on, as `begin` does not touch it. All later rows
attend to its entry. So what is drafted for a request hangs on the request before it.
"""

import json
import sys
from urllib.request import Request, urlopen

ASKED = {"n_predict": 23, "temperature": 0, "ignore_eos": True, "cache_prompt": False}


def accepted(url, prompt):
    """Return how many drafts were accepted in a greedy answer."""
    body = json.dumps({**ASKED, "prompt": prompt}).encode()
    with urlopen(Request(f"{url}/completion", body, {"Content-Type": "application/json"})) as answer:
        return json.load(answer)["timings"].get("draft_n_accepted")


def main(url):
    print("accepted drafts of one request, first of all:", accepted(url, [256]))
    for other in ([256, *b"Once upon a time"], [256, 7], [256, *b"xyz"]):
        accepted(url, other)
        print("the same request behind another one:", accepted(url, [256]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8080")
