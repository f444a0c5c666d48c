"""Log what SGLang does, as `draftproof judge` and `draftproof audit` read it. Run it with SGLang's own Python.

    python examples/loggers/log_sglang.py TARGET PROMPTS.jsonl LOG.jsonl '{"speculative_algorithm": "EAGLE",
        "speculative_draft_model_path": "HEAD", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4}'

The last argument is what sgl.Engine is given besides. PROMPTS has a JSON object a line:
{"prompt": [5, 1, 9], "max_tokens": 40, "stop": [2]}. Written after the sources of SGLang 0.5.23; not run with it.

It lacks trees (speculative_eagle_topk is to be 1), DFlash, and the rounds of a server that runs already: the scheduler
is a process that begins with this file, so that it accepts drafts by the function below. Decoding is greedy.
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
    refuse("usage: python log_sglang.py TARGET PROMPTS.jsonl LOG.jsonl '{\"speculative_algorithm\": .., ..}'")
if not Path(sys.argv[1]).is_dir():
    refuse(f"invalid TARGET {sys.argv[1]!r}: expected the directory of a checkpoint")
REQUESTS = read_prompts(sys.argv[2])
try:
    from sglang.srt.speculative import eagle_worker_common, ngram_worker
except ImportError as error:
    sys.exit(f"{error}: this example is about SGLang (pip install sglang)")

TARGET, _, LOG, MORE = sys.argv[1:]
VERIFIED = Path(f"{LOG}.verified")
sample = eagle_worker_common.eagle_sample


def eagle_sample(verify, batch, *args, **more):
    """Write down the drafts of each request, and how many tokens the round keeps: those accepted and one more."""
    done = sample(verify, batch, *args, **more)
    if not batch.forward_mode.is_idle():
        rows = verify.draft_token.reshape(len(batch.reqs), -1).tolist()  # the pending token, then the drafts
        with VERIFIED.open("a", encoding="utf-8") as file:
            for request, (_, *drafts), kept in zip(batch.reqs, rows, done[1].tolist(), strict=True):
                print(json.dumps([request.rid, drafts, kept]), file=file)
    return done


eagle_worker_common.eagle_sample = ngram_worker.eagle_sample = eagle_sample


def main():
    import sglang

    VERIFIED.write_text("")
    engine = sglang.Engine(model_path=TARGET, dtype="float32", skip_tokenizer_init=True, **json.loads(MORE))
    ends = [{"max_new_tokens": one["max_tokens"], "stop_token_ids": one["stop"]} for one in REQUESTS]
    names, ends = (
        [str(i) for i in range(len(REQUESTS))],
        [{"temperature": 0, "ignore_eos": True, **one} for one in ends],
    )
    texts = engine.generate(input_ids=[one["prompt"] for one in REQUESTS], sampling_params=ends, rid=names)
    engine.shutdown()
    verified = [json.loads(line) for line in VERIFIED.read_text().splitlines()]
    with open(LOG, "w", encoding="utf-8") as log:
        for i, (request, text) in enumerate(zip(REQUESTS, texts, strict=True)):
            tokens, rounds = text["output_ids"], [{"drafts": [], "emitted": text["output_ids"][:1]}]
            done = 1
            for drafts, kept in ((drafts, kept) for name, drafts, kept in verified if name == names[i]):
                if done < len(tokens):  # a round that was planned before the end was known emits nothing
                    rounds.append({"drafts": drafts, "emitted": tokens[done : done + kept]})
                done += kept
            for told in (
                {"request": i, **request},
                *({"request": i, "round": r, **one} for r, one in enumerate(rounds)),
            ):
                print(json.dumps(told), file=log)


if __name__ == "__main__":
    main()
