"""Log what assisted generation of transformers does, as `draftproof judge` and `draftproof audit` read it.

    python examples/loggers/log_transformers.py TARGET PROMPTS.jsonl LOG.jsonl [DRAFT]

Drafts are those of the model in DRAFT, with the word mtp in its place those of the target's own MTP layers, without it
those of prompt lookup, whose longest suffix is 2: judge it with --draft ngram --max-n 2. PROMPTS has a JSON object a
line: {"prompt": [5, 1, 9], "max_tokens": 40, "stop": [2]}. Seen on transformers 5.23.0.

It lacks what a round took from a cache, and all but greedy decoding; a proposal that ends at a stop token stays short.
transformers finds MTP layers by the numbers that published checkpoints give them: tiny ones have other numbers.
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


if len(sys.argv) not in (4, 5):
    refuse("usage: python log_transformers.py TARGET PROMPTS.jsonl LOG.jsonl [DRAFT]")
if not Path(sys.argv[1]).is_dir():
    refuse(f"invalid TARGET {sys.argv[1]!r}: expected the directory of a checkpoint")
if sys.argv[4:] not in ([], ["mtp"]) and not Path(sys.argv[4]).is_dir():
    refuse(f"invalid DRAFT {sys.argv[4]!r}: expected the directory of a checkpoint, or mtp")
REQUESTS = read_prompts(sys.argv[2])
try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as error:
    sys.exit(f"{error}: this example is about transformers (pip install 'transformers>=5.17')")

TARGET, _, LOG, *DRAFT = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32)
with_drafts = {"prompt_lookup_num_tokens": 4}
if DRAFT == ["mtp"]:
    with_drafts = {"use_mtp": True}
elif DRAFT:
    with_drafts = {"assistant_model": AutoModelForCausalLM.from_pretrained(DRAFT[0], dtype=torch.float32)}
rounds, make = [], model._get_candidate_generator


def logged(**given):
    """Return the generator that transformers would take, which writes down its rounds."""
    generator = make(**given)
    propose, update = generator.get_candidates, generator.update_candidate_strategy

    def get_candidates(input_ids, **more):
        candidates, logits = propose(input_ids, **more)
        rounds.append({"before": input_ids.shape[1], "drafts": candidates[0, input_ids.shape[1] :].tolist()})
        return candidates, logits

    def update_candidate_strategy(input_ids, scores, num_matches):
        rounds[-1]["emitted"] = input_ids[0, rounds[-1].pop("before") :].tolist()
        update(input_ids, scores, num_matches)

    generator.get_candidates, generator.update_candidate_strategy = get_candidates, update_candidate_strategy
    return generator


model._get_candidate_generator = logged
with open(LOG, "w", encoding="utf-8") as log:
    for i, request in enumerate(REQUESTS):
        rounds.clear()
        ids, stop = torch.tensor([request["prompt"]]), request["stop"] or [model.config.vocab_size]
        ends = {"max_new_tokens": request["max_tokens"], "eos_token_id": stop, "pad_token_id": model.config.vocab_size}
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **ends, **with_drafts)
        for told in ({"request": i, **request}, *({"request": i, "round": r, **one} for r, one in enumerate(rounds))):
            print(json.dumps(told), file=log)
