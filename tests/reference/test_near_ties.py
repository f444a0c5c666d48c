"""Near ties as they come: an engine in float32, of which only the text shows, on a model whose tokens have twins.

    python -m tests.reference.test_near_ties --scenarios 1000

runs the same on many small scenarios, and says how many texts went another way than float64, and how many were
called wrong; with `--whole` it shows everything, half of the scenarios have an EAGLE draft, and a scenario is wrong if
any contract fails.
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
import pytest
import torch
from msgspec.structs import replace as put
from safetensors.torch import load_file, save_file

from draftproof.engine.subject import EngineSubject
from draftproof.harness.check import Checker
from draftproof.harness.lockstep import evidence
from draftproof.properties.evidence.comparison import find_other_tokens, of_same_tokens
from draftproof.properties.judge import REAL, judge
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.relations import NotGreedy
from draftproof.properties.values.scenario import Graphs, RoundPlan, Scenario, Schedule
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.verdict import Divergence, Outcome
from draftproof.reference.text import token_gaps
from tests.checkpoints import tiny_llama
from tests.named.real import real


def twins(folder: Path) -> Path:
    """Write a Llama whose head has every token twice, but for noise of the size of float32's rounding."""
    tiny_llama(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    head = tensors["lm_head.weight"]
    half = len(head) // 2
    noise = torch.randn(head[:half].shape, generator=torch.Generator().manual_seed(7))
    head[half : 2 * half] = head[:half] * (1 + noise * 2.0**-24)
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def small(path: Path, seed: int, count: int, draft: Algorithm = "ngram") -> Iterator[Scenario]:
    """Scenarios of one short request: others for each seed."""
    (scenario,) = real(path, ["eagle_padded"], draft)
    rng = random.Random(f"{seed} {draft}")
    for _ in range(count):
        counts = [rng.randint(1, scenario.steps) for _ in range(3)]
        request = put(
            scenario.requests[0],
            arrival=0,
            prompt=tuple(rng.randrange(scenario.model.vocab) for _ in range(6)),
            budget=rng.randint(5, 10),
            rounds=tuple(RoundPlan(num_drafts=drafts, num_correct=rng.randint(-1, drafts)) for drafts in counts),
            stop_at=-1,
        )
        yield put(
            scenario,
            requests=(request,),
            memory=put(scenario.memory, page_seed=rng.randrange(99)),
            graphs=Graphs(),
            schedule=Schedule(max_batch=1, chunk=8),
        )


class TextOnly(EngineSubject):
    """The engine, of which only the text shows; `wrong`: it says token 0 for the third that it emits."""

    name = "text only"
    limits = Limits(models=("checkpoint",), variants=())

    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        self._wrong = wrong

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.emitted"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        trace = super().run(put(scenario, taps=False), script)
        kept = [one for one in trace.observations if one.channel == "accept.emitted"]
        if self._wrong:
            kept = [self._other(one) if one.key.round == 1 else one for one in kept]
        return replace(trace, channels=self.channels(scenario), observations=tuple(kept))

    def _other(self, one: Observation) -> Observation:
        first, *rest = one.value  # type: ignore[misc]
        return one._replace(value=(first - 3 if first > 2 else first + 3, *rest))


def outcomes(path: Path, seed: int, count: int, *, wrong: bool = False) -> Counter[str]:
    """How the texts of an engine are judged."""
    told = Counter[str]()
    subject = TextOnly(wrong)
    for scenario in small(path, seed, count):
        ran = evidence(subject, scenario)
        found = judge(ran).results["output.lossless"]
        told["wrong" if found else "right"] += 1
        told["another text than float64's"] += bool(ran.followed)
        told["tokens"] += len(ran.subject.texts[0])
        told["tokens that were not the best"] += sum(gap.below > 0 for gap in ran.reference.token_gaps.get(0, ()))
    return told


def whole(path: Path, seed: int, count: int) -> Counter[str]:
    """How the engine is judged of which everything shows."""
    told = Counter[str]()
    drawn = (one for draft in ("ngram", "eagle") for one in small(path, seed, count // 2, draft))
    for scenario in drawn:
        ran = evidence(EngineSubject(), scenario)
        failed = sorted(name for name, found in judge(ran).results.items() if found)
        told["wrong" if failed else "right"] += 1
        told.update(failed)
        told["another text than float64's"] += bool(ran.followed)
        told["tokens"] += len(ran.subject.texts[0])
        told["with a tie of the draft"] += bool(ran.draft_ties)
    return told


def test_no_near_tie_is_called_wrong(tmp_path: Path) -> None:
    told = outcomes(twins(tmp_path / "twins"), 1, 4)
    assert told["wrong"] == 0
    assert told["another text than float64's"] > 1


def test_a_wrong_token_among_near_ties_is(tmp_path: Path) -> None:
    told = outcomes(twins(tmp_path / "twins"), 3, 2, wrong=True)
    assert told["wrong"] == 2


def test_a_near_tie_of_a_draft_is_no_difference_and_a_wrong_proposal_is(tmp_path: Path) -> None:
    path = twins(tmp_path / "twins")
    near = [evidence(EngineSubject(), one) for one in small(path, 1, 2, "eagle")]
    assert any(one.draft_ties for one in near)
    assert not any(judge(one).results.get(name) for one in near for name in ("draft.proposal", "draft.proposed"))
    some = (evidence(EngineSubject(), one) for one in small(tiny_llama(tmp_path / "llama"), 1, 4, "eagle"))
    plain = next(one for one in some if one.subject.channel("draft.step.proposal"))
    assert judge(plain).passed
    told = plain.subject.observations
    place = next(i for i, one in enumerate(told) if one.channel == "draft.step.proposal")
    token, margin = told[place].value  # type: ignore[misc]
    wrong = (*told[:place], told[place]._replace(value=((token + 1) % 50, margin)), *told[place + 1 :])
    assert judge(replace(plain, subject=replace(plain.subject, observations=wrong))).results["draft.proposal"]


def changed(trace: Trace, place: int, value: Datum) -> Trace:
    told = trace.observations
    return replace(trace, observations=(*told[:place], told[place]._replace(value=value), *told[place + 1 :]))


def test_everything_is_judged_on_the_way_that_a_text_went(tmp_path: Path) -> None:
    """Behind a tie whatever is wrong is found, and nothing that is right is called wrong."""
    path = twins(tmp_path / "twins")
    ran = [evidence(EngineSubject(), one) for one in real(path, ["five_in_graphs", "hybrid_snapshot"])]
    assert not [found for one in ran for found in judge(one).results.values() if found]
    one = next(one for one in ran if one.followed and one.scenario.taps)
    request = min(one.followed)
    told = one.subject.observations
    last = {of.channel: place for place, of in enumerate(told) if of.key.request == request}
    for channel, contract, other in (
        ("commit.length", "commit.length", lambda value: value + 1),
        ("verify.ids", "verify.ids", lambda value: (value + 1) % 60),
        ("commit.kv", "commit.kv", lambda value: value + 1),
    ):
        place = last[channel]
        wrong = replace(one, subject=changed(one.subject, place, other(told[place].value)))
        assert judge(wrong).results[contract], channel
    place = last["accept.emitted"]
    *before, token = told[place].value  # type: ignore[misc]
    subject = changed(one.subject, place, (*before, (token + 1) % 30))
    # The gaps of the text that went another way are those of its own tokens.
    gaps = token_gaps(one.scenario, one.script, subject.texts)
    wrong = replace(one, subject=subject, reference=replace(one.reference, token_gaps=gaps))
    assert judge(wrong).results["output.lossless"]
    # What a grammar never allows is infinitely far below the best, which no JSON can say.
    barred = {at: tuple(gap._replace(below=inf) if gap.below else gap for gap in of) for at, of in gaps.items()}
    found = judge(replace(wrong, reference=replace(one.reference, token_gaps=barred))).results["output.lossless"]
    assert found is not None
    assert isinstance(found.relation, NotGreedy)
    assert found.relation.below is None
    assert msgspec.json.decode(msgspec.json.encode(found), type=Divergence) == found


def test_of_a_tied_choice_only_tokens_near_the_best_are_right(tmp_path: Path) -> None:
    for scenario in small(twins(tmp_path / "twins"), 3, 6, "eagle"):
        one = evidence(EngineSubject(), scenario)
        for place, said in enumerate(one.subject.observations):
            near = dict(one.reference.near.get(("draft.step.proposal", said.key), ()))
            # Behind a tie of the same round nothing is compared.
            if near and said.channel == "draft.step.proposal" and one.comparable(said.channel, {said.key: said.value}):
                far = max(near, key=near.__getitem__)
                assert min(near.values()) < 1e-4 < 0.01 < near[far]
                wrong = replace(one, subject=changed(one.subject, place, (far, 0.0)))
                assert judge(wrong).results["draft.proposal"]
                return
    raise AssertionError("no choice of the draft has tokens that come near")


def ill_conditioned(folder: Path, but: Collection[int]) -> Path:
    """Change a Llama so that values of its first layer are small differences of large products, but of some tokens."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    first = "model.layers.0"
    for name in ("model.embed_tokens", f"{first}.input_layernorm"):
        tensors[f"{name}.weight"][..., 1] = tensors[f"{name}.weight"][..., 0]
    tensors["model.embed_tokens.weight"][sorted(but), :2] = 0
    values = tensors[f"{first}.self_attn.v_proj.weight"]
    large = 300 * (1 + torch.rand(len(values), generator=torch.Generator().manual_seed(5)))
    values[:, 0], values[:, 1] = values[:, 0] + large, values[:, 1] - large
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def test_the_run_in_float32_widens_bounds_behind_a_choice_that_it_makes_otherwise(tmp_path: Path) -> None:
    """Its text and what it verifies are given, so that it goes on being of the same tokens.

    Of the prompts it tells nothing: in them there is no token of which the float32 of this model is far off.
    """
    (scenario,) = real(twins(tmp_path / "twins"), ["mixed_eagle"])
    ill_conditioned(tmp_path / "twins", {token for request in scenario.requests for token in request.prompt})
    one = evidence(EngineSubject(), scenario)
    rounded = one.reference.rounded
    assert rounded is not None
    others = find_other_tokens(one.reference, rounded)
    # Of which requests it chooses another draft hangs on how a processor rounds.
    assert others.drafts
    for channel in ("verify.hidden", "commit.kv", "extend.kv"):
        assert of_same_tokens(channel, rounded, others).keys() == one.reference.channel(channel).keys()
    assert not [found for found in judge(one).results.values() if found]


@pytest.mark.parametrize(("wrong", "verdict"), [(False, Outcome.PASS), (True, Outcome.FAIL)])
def test_a_subject_that_shows_its_text_only_is_judged(tmp_path: Path, wrong: bool, verdict: Outcome) -> None:
    scenarios = list(small(tiny_llama(tmp_path / "llama"), 2, 4))
    report = Checker(TextOnly(wrong), cases=tmp_path, each=REAL, guarded=False).check(scenarios, 2)
    assert (report.verdict, report.level) == (verdict, "text")


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenarios", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        judged = whole if arguments.whole else outcomes
        told = judged(twins(Path(folder) / "twins"), arguments.seed, arguments.scenarios)
    print(dict(told))


if __name__ == "__main__":
    main()
