"""Check an engine that is not part of Draftproof: transformers' prompt-lookup decoding, on a tiny Llama checkpoint.

    python examples/own_engine.py .draftproof/own-engine

A subject has a `name`, `limits` (what it can run), `channels(scenario)` (what it reports) and `run(scenario, script)`,
which returns a Trace. This one reports three channels: the tokens that every round proposed, those that it emitted, and
how many of its drafts were correct. They are enough for the contracts `output.lossless` and `draft.proposed`. Every
further channel brings further contracts, and those that it cannot be held to are skipped.
"""

import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

try:
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
    from transformers.generation import PromptLookupCandidateGenerator
except ImportError as error:
    sys.exit(f"{error}: this example is about transformers (pip install 'transformers>=5.17')")

import draftproof
from draftproof.subject import (
    Key,
    Limits,
    Observation,
    Request,
    RequestScript,
    Scenario,
    Script,
    Subject,
    Trace,
    drafts_allowed,
    forced,
    round_plan,
)


class Round(NamedTuple):
    """What one round emitted, how many of its drafts were correct, and what it would have verified by itself."""

    emitted: tuple[int, ...]
    correct_len: int
    proposed: tuple[int, ...]


class SteeredLookup(PromptLookupCandidateGenerator):
    """Prompt lookup, except where the script forces the drafts of a round. Keeps every round."""

    def __init__(self, scenario: Scenario, request: Request, script: RequestScript) -> None:
        super().__init__(
            num_output_tokens=scenario.steps,
            max_matching_ngram_size=scenario.draft.max_n,
            max_length=scenario.memory.max_len + 1,  # it does not look for the very last token, which has a round here
        )
        self.max_len = scenario.memory.max_len
        self.request, self.script, self.rounds = request, script, []
        self.proposed, self.drafts = (), ()

    def get_candidates(self, input_ids, **_):
        round_, context = len(self.rounds), input_ids.shape[1] - 1
        emitted = input_ids.shape[1] - len(self.request.prompt)
        left = self.request.budget - emitted
        wanted = (
            round_plan(self.request, round_).num_drafts if round_ else 0
        )  # round 0 is the prefill: it has no drafts
        count = drafts_allowed(wanted, context=context, max_len=self.max_len, budget_left=left)
        proposed = super().get_candidates(input_ids)[0][0, context + 1 :].tolist()[:count]
        self.proposed = tuple(proposed)
        drafts = forced(self.script, round_, emitted, count)
        self.drafts = self.proposed if drafts is None else drafts[:count]
        return torch.cat((input_ids, input_ids.new_tensor([self.drafts])), dim=1), None

    def update_candidate_strategy(self, input_ids, scores, num_matches):
        # num_matches is cut in the round that ends a request; how many drafts were correct is not.
        matches = [draft == choice for draft, choice in zip(self.drafts, scores[0].argmax(-1).tolist(), strict=False)]
        correct_len = [*matches, False].index(False)
        self.rounds.append(Round(tuple(input_ids[0, -int(num_matches) - 1 :].tolist()), correct_len, self.proposed))


class PromptLookup(Subject):
    """`model.generate(prompt_lookup_num_tokens=...)` as a subject."""

    name = "transformers prompt lookup"
    # One request at a time, eager: it has no batches, step counts, graphs or pages that a scenario could change.
    limits = Limits(
        models=("checkpoint",),
        drafts=("ngram",),
        arrivals="serial",
        variants=(),
    )

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.correct_len", "accept.emitted", "propose.tokens"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Decode every request of the scenario; report what each of its rounds proposed, accepted and emitted."""
        observations = []
        for i, (request, steered) in enumerate(zip(scenario.requests, script.requests, strict=True)):
            rounds = self.decode(scenario, request, steered)
            observations += [Observation("accept.emitted", Key(i, r), one.emitted) for r, one in enumerate(rounds)]
            decoded = list(enumerate(rounds))[1:]
            observations += [Observation("propose.tokens", Key(i, r), one.proposed) for r, one in decoded]
            observations += [Observation("accept.correct_len", Key(i, r), one.correct_len) for r, one in decoded]
        return Trace(self.name, self.channels(scenario), tuple(observations))

    def decode(self, scenario: Scenario, request: Request, script: RequestScript) -> list[Round]:
        """Return rounds 0, 1, ... of one request."""
        model, prompt = load(scenario.model.path), torch.tensor([request.prompt])
        lookup = SteeredLookup(scenario, request, script)
        model._get_candidate_generator = lambda **_: lookup
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            prompt_lookup_num_tokens=scenario.steps,
            max_new_tokens=min(request.budget, scenario.memory.max_len - len(request.prompt)),
            eos_token_id=list(script.stop) or None,
            pad_token_id=0,
        )
        return lookup.rounds


@cache
def load(path: str) -> LlamaForCausalLM:
    """Return the model in float64, like the reference, so that no two logits are equal by rounding alone."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)


def write_checkpoint(folder: Path) -> Path:
    """Write a Llama with random weights, small enough for the float64 reference. Return `folder`."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=53, max_position_embeddings=256, bos_token_id=None, eos_token_id=None, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def main(folder: Path, count: int = 8) -> None:
    """Check the engine on generated scenarios and print the verdict of every contract that it can be held to."""
    scenarios = draftproof.checkpoint_scenarios(write_checkpoint(folder), draft="ngram", seed=0, count=count)
    report = draftproof.check(PromptLookup(), scenarios)
    for verdict in report.contracts:
        if verdict.verdict is not draftproof.Outcome.SKIP:
            print(f"{verdict.verdict:13} {verdict.name:26} {', '.join(verdict.missing)}".rstrip())
    uncovered = sum(len(counts) for counts in report.uncovered.values())
    print(f"{report.verdict} at the level of {report.level}; {uncovered} counts are beyond what this subject shows.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("expected one argument: the folder to write a tiny checkpoint into")
    main(Path(sys.argv[1]))
