"""Log what `speculative_generate_step` of mlx-lm does, as `draftproof judge` and `draftproof audit` read it.

    python examples/loggers/log_mlx_lm.py TARGET PROMPTS.jsonl LOG.jsonl DRAFT

PROMPTS has a JSON object a line: {"prompt": [5, 1, 9], "max_tokens": 40, "stop": [2]}. Seen on mlx-lm 0.32.2.

It lacks caches that live on from one prompt to the next, as `mlx_lm.server` keeps them, and all but greedy decoding.
"""

import json
import sys
from pathlib import Path


def refuse(told):
    print(told, file=sys.stderr)
    sys.exit(2)


def read_prompts(path):
    try:
        told = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        return [{"prompt": one["prompt"], "max_tokens": 40, "stop": [], **one} for one in told]
    except (OSError, ValueError, TypeError, KeyError) as error:
        refuse(f'invalid PROMPTS {path!r}: expected lines such as {{"prompt": [5, 1, 9]}}, got {error!r}')


if len(sys.argv) != 5:
    refuse("usage: python log_mlx_lm.py TARGET PROMPTS.jsonl LOG.jsonl DRAFT")
if not Path(sys.argv[1]).is_dir():
    refuse(f"invalid TARGET {sys.argv[1]!r}: expected the directory of a checkpoint")
if not Path(sys.argv[4]).is_dir():
    refuse(f"invalid DRAFT {sys.argv[4]!r}: expected the directory of a checkpoint")
REQUESTS = read_prompts(sys.argv[2])
try:
    import mlx.core as mx
    from mlx_lm.generate import speculative_generate_step
    from mlx_lm.utils import load_model
except ImportError as error:
    sys.exit(f"{error}: this example is about mlx-lm (pip install mlx-lm, on Linux with 'mlx[cpu]')")


class Seen:
    """A model that writes down what it is fed: in a round the target is fed the pending token and the drafts."""

    def __init__(self, model):
        self.model, self.passes = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, tokens, **more):
        self.passes.append(tokens[0].tolist())
        return self.model(tokens, **more)


TARGET, _, LOG, DRAFT = sys.argv[1:]
target, draft = Seen(load_model(Path(TARGET))[0]), load_model(Path(DRAFT))[0]
with open(LOG, "w", encoding="utf-8") as log:
    for i, request in enumerate(REQUESTS):
        rounds, passes = [], 0
        target.passes.clear()
        for token, *_ in speculative_generate_step(
            mx.array(request["prompt"]), target, draft, num_draft_tokens=4, max_tokens=request["max_tokens"]
        ):
            if len(target.passes) > passes:
                passes = len(target.passes)
                rounds.append({"drafts": target.passes[-1][1:], "emitted": []})
            rounds[-1]["emitted"].append(token)
            if token in request["stop"]:
                break
        for told in ({"request": i, **request}, *({"request": i, "round": r, **one} for r, one in enumerate(rounds))):
            print(json.dumps(told), file=log)
