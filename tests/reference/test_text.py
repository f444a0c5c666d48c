"""The text contract: a near tie is right and judged on, a wrong token, stop or length is not."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace as put
from safetensors.torch import load_file, save_file

from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.judge import judge
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.relations import NotGreedy
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.reference.build import build
from draftproof.reference.decode import RequestLimits
from draftproof.reference.memo import Memo
from draftproof.reference.solved import solved
from tests.checkpoints import tiny_llama
from tests.named.real import real

Choose = Callable[[list[float]], int]
Cut = Callable[[tuple[int, ...]], tuple[int, ...]]


MEMO = Memo()


class Text(Subject):
    """Emits a text and nothing else, chosen token by token from the reference's own logits."""

    name = "text"
    limits = Limits(models=("checkpoint",), arrivals="serial", steering="none", variants=())

    def __init__(self, choose: Choose, cut: Cut = tuple) -> None:
        self._choose, self._cut = choose, cut

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.emitted"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        target, _ = build(scenario, MEMO)
        said = []
        for index, (request, steered) in enumerate(zip(scenario.requests, script.requests, strict=True)):
            limits, text = RequestLimits.of(request, scenario.memory.max_len, steered.stop), ()
            while not text or not limits.ended(text):
                text += (self._choose(target.forward((*request.prompt, *text)).logits[-1].tolist()),)
            said.append(Observation("accept.emitted", Key(index, 0), self._cut(text)))
        return Trace(self.name, self.channels(scenario), tuple(said))


def best(logits: list[float]) -> int:
    return logits.index(max(logits))


def other_twin(logits: list[float]) -> int:
    """The token whose logit is the nearest below the best, if rounding cannot tell the two."""
    first, second = sorted(range(len(logits)), key=lambda token: -logits[token])[:2]
    return second if logits[first] - logits[second] < 1e-6 else first


def second_best(logits: list[float]) -> int:
    return sorted(range(len(logits)), key=lambda token: -logits[token])[1]


@pytest.fixture(scope="module")
def near_ties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose output head has every token twice, up to one unit in the last place of float32."""
    folder = tiny_llama(tmp_path_factory.mktemp("ties") / "llama")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    head = tensors["lm_head.weight"]
    half = len(head) // 2
    head[half : 2 * half] = torch.nextafter(head[:half], torch.full_like(head[:half], 2.0))
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


reference = cache(solved)


@cache
def scenarios(path: Path) -> tuple[Scenario, ...]:
    """Some whose first request emits more than the tests count to."""
    found = tuple(real(path, ["mtp_chain_partial", "dflash_block"], "ngram"))
    assert all(len(reference(one).script.requests[0].tokens) > 6 for one in found)
    return found


def texts(path: Path, subject: Text) -> list[bool]:
    """For each scenario, whether `output.lossless` holds."""
    found = []
    for scenario in scenarios(path):
        ran = evidence(subject, put(scenario, variant="none"), reference)
        found.append(judge(ran).results["output.lossless"] is None)
    return found


def test_the_other_of_two_near_equals_is_right_and_its_continuation_is_judged(near_ties: Path) -> None:
    chosen = Text(other_twin)
    assert all(texts(near_ties, chosen))
    ran = [evidence(chosen, put(one, variant="none"), reference) for one in scenarios(near_ties)]
    assert sum(counts(one)["token_ties"] for one in ran) > 10
    assert all(one.output_changed is False for one in ran)


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_wrong_token_behind_ties_is_found(near_ties: Path, after: int) -> None:
    seen = 0

    def wrong(logits: list[float]) -> int:
        nonlocal seen
        seen += 1
        return logits.index(min(logits)) if seen == after + 1 else other_twin(logits)

    assert texts(near_ties, Text(wrong))[0] is False


@pytest.mark.parametrize(
    "cut", [lambda text: text[:-1], lambda text: (*text, text[-1]), lambda _: (), lambda _: (999,)]
)
def test_a_length_that_is_not_exact_is_wrong(
    near_ties: Path, cut: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> None:
    assert not any(texts(near_ties, Text(other_twin, cut)))


def test_where_no_two_are_near_equal_the_second_best_is_wrong(tmp_path_factory: pytest.TempPathFactory) -> None:
    plain = tiny_llama(tmp_path_factory.mktemp("plain") / "llama")
    assert all(texts(plain, Text(best)))
    assert not any(texts(plain, Text(second_best)))
    found = judge(evidence(Text(second_best), put(scenarios(plain)[0], variant="none"), reference)).results
    relation = getattr(found["output.lossless"], "relation", None)
    assert isinstance(relation, NotGreedy)
    assert relation.token == 0
    assert relation.below > 0.001


def test_it_needs_a_reference_of_its_own_text(near_ties: Path) -> None:
    """Held against plain decoding, and without the pass over the text, the first tie fails."""
    scenario = put(scenarios(near_ties)[0], variant="none")
    ran, plain = evidence(Text(other_twin), scenario, reference), reference(scenario)
    assert ran.followed
    assert plain.trace is not None
    without = replace(ran, script=plain.script, reference=plain.trace)
    assert judge(without).results["output.lossless"] is not None
