"""Engines that are a loop: nobody tells them how many drafts to verify, and the first may come with the prompt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftproof.properties.lib.errors import InputError
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.tracer.endpoints import SubjectEndpoint, draft_of
from draftproof.tracer.oracle import continuation
from draftproof.tracer.program import Program
from draftproof.tracer.runs import TracerReport, judge
from draftproof.tracer.sessions import Asked, sessions, small_sessions
from draftproof.tracer.simulated import Drafting, expected
from tests.tracer.tracers import built, texts

WIDTH = 3


def decoded(program: Program, prompt: tuple[int, ...], *, with_prompt: bool, wrong: str = "") -> Iterator[list[int]]:
    """Yield what each round emits, by two caches that are lists of tokens, to which what is run is appended."""
    small, ran, drafted = program.small, [*prompt], [*prompt]
    assert small is not None
    emitted = [ran.pop()] if with_prompt else continuation(program, prompt, 1)
    behind = [drafted.pop(), *emitted][-1:] if with_prompt else emitted
    if not with_prompt:
        yield emitted
    while True:
        drafts = continuation(small, [*drafted, *behind], WIDTH)
        rows = [[*ran, emitted[-1], *drafts[:count]] for count in range(WIDTH + 1)]
        right = [continuation(program, row, 1)[0] for row in rows]
        accepted = next((i for i in range(WIDTH) if drafts[i] != right[i]), WIDTH)
        accepted = min(accepted, 1) if wrong == "accepts one at most" else accepted
        ran = rows[min(accepted + (wrong == "target keeps"), WIDTH)]
        drafted += [*behind, *drafts[: min(accepted + (wrong == "draft keeps"), WIDTH - 1)]]
        emitted = [*drafts[:accepted], right[accepted]]
        yield emitted
        is_full = accepted == WIDTH and wrong != "draft short"
        behind = [*drafts[-1:], right[WIDTH]] if is_full else emitted[-1:]


class Loop(Subject):
    """An engine of two models, one request after the other."""

    name = "loop"

    def __init__(self, program: Program, *, with_prompt: bool, wrong: str = "") -> None:
        self.limits = Limits(
            models=("checkpoint",),
            drafts=("standalone",),
            arrivals="serial",
            steering="none",
            first_drafts="with prompt" if with_prompt else "own round",
            variants=(),
        )
        self._program, self._with_prompt, self._wrong = program, with_prompt, wrong

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.emitted"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        said = list[Observation]()
        for index, (request, asked) in enumerate(zip(scenario.requests, script.requests, strict=True)):
            one, text = Asked(prompt=request.prompt, count=request.budget, stops=asked.stop), list[int]()
            rounds = decoded(self._program, request.prompt, with_prompt=self._with_prompt, wrong=self._wrong)
            for number, emitted in enumerate(rounds):
                before, text = len(text), [*one.cut([*text, *emitted])]
                said.append(Observation("accept.emitted", Key(index, number), tuple(text[before:])))
                if len(text) == one.count or text[-1] in one.stops:
                    break
        return Trace(self.name, self.channels(scenario), tuple(said))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Program]:
    return built(tmp_path_factory.mktemp("loops"), "llama", "standalone")


@pytest.mark.parametrize("with_prompt", [True, False])
def test_lengths_are_those_of_two_models_side_by_side(llama: tuple[Path, Program], with_prompt: bool):
    _, program = llama
    for text in texts(program, 12, 40, 5):
        asked, lengths = Asked(prompt=tuple(text), count=14), list[int]()
        for emitted in decoded(program, asked.prompt, with_prompt=with_prompt):
            lengths.append(min(len(emitted), asked.count - sum(lengths)))
            if sum(lengths) == asked.count:
                break
        answer = expected(program, asked, Drafting(WIDTH, with_prompt))
        assert answer.tokens == tuple(continuation(program, text, asked.count))
        assert answer.lengths == tuple(lengths if with_prompt else lengths[1:])


def report(llama: tuple[Path, Program], subject: Loop, *, is_known: bool = True, seconds: float = 0) -> TracerReport:
    directory, program = llama
    draft = draft_of(program, directory, None, subject.limits.drafts)
    endpoint = SubjectEndpoint(subject, directory, draft, WIDTH, "float32", is_known=is_known)
    more = small_sessions(program, 3, 12, 12)
    return judge(endpoint, program, sessions(program, 3, 5, 12, 12), seconds=seconds, shrink=False, more=more)


@pytest.mark.parametrize("with_prompt", [True, False])
def test_its_rounds_are_compared_where_their_drafts_are_known(llama: tuple[Path, Program], with_prompt: bool):
    loop = Loop(llama[1], with_prompt=with_prompt)
    losing = Loop(llama[1], with_prompt=with_prompt, wrong="accepts one at most")
    right, unknown, wrong = report(llama, loop), report(llama, losing, is_known=False), report(llama, losing)
    assert (right.verdict, right.compared) == ("PASS", right.requests)
    assert (unknown.verdict, unknown.compared) == ("PASS", 0), "the tokens are right"
    assert wrong.verdict == "FAIL"
    assert wrong.first is not None
    assert wrong.first.what == "rounds"


def test_a_loop_is_not_taken_for_the_other_kind(llama: tuple[Path, Program]):
    loop = Loop(llama[1], with_prompt=True)
    loop.limits = Loop(llama[1], with_prompt=False).limits
    assert report(llama, loop).verdict == "FAIL"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("target keeps", "rejected draft kept in the cache, what follows one place further"),
        ("draft keeps", "rejected draft kept in the draft's cache, what follows one place further"),
        ("draft short", "draft cache a token short after a full accept, what follows one place nearer"),
    ],
)
def test_what_stays_in_a_cache_or_never_enters_it_is_named(llama: tuple[Path, Program], wrong: str, named: str):
    found = report(llama, Loop(llama[1], with_prompt=True, wrong=wrong), seconds=120)
    assert found.verdict == "FAIL"
    assert (found.explanations[0].name, found.equal) == (named, 1)


def test_a_number_of_drafts_that_is_fixed_is_known(llama: tuple[Path, Program]):
    loop = Loop(llama[1], with_prompt=False)
    loop.limits = replace(loop.limits, fixed_drafts=WIDTH)
    found = report(llama, loop, is_known=False)
    assert (found.verdict, found.compared) == ("PASS", found.requests)
    loop.limits = replace(loop.limits, fixed_drafts=WIDTH + 1)
    with pytest.raises(InputError, match="invalid --drafts 3: expected 4, which every round of it has"):
        report(llama, loop)
    loop.limits = replace(loop.limits, fixed_drafts=0, max_drafts=2)
    assert report(llama, loop).verdict == "FAIL", "it drafts more than it says"
