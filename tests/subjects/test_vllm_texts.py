"""vLLM's texts, without vLLM: an engine that plays a fixed text in place of the real one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.scenario import Checkpoint, Memory, Request, Scenario
from draftproof.properties.values.script import RequestScript, Script
from draftproof.properties.values.trace import Key
from draftproof.subjects.making import SettingError, made
from draftproof.subjects.vllm import subject as subjects
from draftproof.subjects.vllm.texts import TextRun
from tests.named import named

TEXT = tuple(range(40, 60))


class PlayedEngine:
    """Emits two tokens of TEXT for every request in each step; of the prompt it says that two tokens were cached.

    Each request is preempted as often as its name says. Ended ones stay in the scheduler for `tail` steps.
    """

    def __init__(self, tail: int = 0) -> None:
        self.engine_core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=self))
        self.requests: dict[str, Any] = {}
        self.added: list[tuple[int, str, list[int], Any]] = []
        self.steps, self.tail = 0, tail

    def add_request(self, name: str, prompt: dict[str, list[int]], limits: Any) -> None:
        self.added.append((self.steps, name, prompt["prompt_token_ids"], limits))
        name = f"{name}-abcd"
        self.requests[name] = SimpleNamespace(limits=limits, emitted=[], num_preemptions=int(name[0]))

    def step(self) -> list[Any]:
        self.steps += 1
        told = []
        for name, one in list(self.requests.items()):
            one.emitted = list(TEXT[: min(len(one.emitted) + 2, one.limits.max_tokens)])
            whole = SimpleNamespace(token_ids=list(one.emitted))
            cached = 2 if len(one.emitted) <= 2 else None
            told.append(SimpleNamespace(request_id=name, outputs=[whole], num_cached_tokens=cached))
            if len(one.emitted) == one.limits.max_tokens:
                del self.requests[name]
        self.tail -= not self.requests
        return told

    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)

    def has_requests(self) -> bool:
        return bool(self.requests) or self.tail > 0


@pytest.fixture(autouse=True)
def parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = ModuleType("vllm")
    vllm.SamplingParams = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)


@pytest.fixture
def scenario() -> Scenario:
    """Three requests, of which the middle one comes late and the last one is cut by max_len."""
    budgets, arrivals, prompts = (5, 3, 9), (0, 4, 0), ((1, 2, 3), (4, 5), (6,) * 60)
    requests = tuple(
        Request(arrival=arrival, prompt=prompt, budget=budget, rounds=())
        for arrival, prompt, budget in zip(arrivals, prompts, budgets, strict=True)
    )
    memory = Memory(page_size=32, pages=12, request_slots=3, max_len=64)
    model = Checkpoint(path="nowhere", vocab=67)
    return replace(named("ngram_matches"), model=model, draft=Ngram(max_n=3), steps=4, memory=memory, requests=requests)


SCRIPT = Script(requests=tuple(RequestScript(tokens=(), stop=(stop,), rounds=()) for stop in (9, 8, 7)))


def test_the_text_of_each_request_is_told_round_by_round(scenario):
    told = TextRun(PlayedEngine(), scenario, SCRIPT).run()
    emitted = {one.key: one.value for one in told if one.channel == "accept.emitted"}
    cuts = {0: ((0, 2), (2, 4), (4, 5)), 1: ((0, 2), (2, 3)), 2: ((0, 2), (2, 4))}
    assert emitted == {
        Key(request, round_): TEXT[first:last]
        for request, rounds in cuts.items()
        for round_, (first, last) in enumerate(rounds)
    }


def test_what_the_cache_served_and_who_was_preempted_is_counted(scenario):
    run = TextRun(PlayedEngine(), scenario, SCRIPT)
    cached = {one.key: one.value for one in run.run() if one.channel == "round.cached"}
    assert cached == {Key(0, 0): 2, Key(1, 0): 2, Key(2, 0): 2}
    assert (run.cached, run.preempted) == (6, 0 + 1 + 2)


def test_requests_come_at_their_step_and_end_by_budget_and_stops(scenario):
    engine = PlayedEngine()
    TextRun(engine, scenario, SCRIPT).run()
    assert [(step, name) for step, name, *_ in engine.added] == [(0, "0"), (0, "2"), (4, "1")]
    limits = {name: given for _, name, _, given in engine.added}
    assert {name: (given.max_tokens, given.stop_token_ids) for name, given in limits.items()} == {
        "0": (5, [9]),
        "1": (3, [8]),
        "2": (4, [7]),
    }
    assert all(given.temperature == 0.0 and given.ignore_eos for given in limits.values())
    assert engine.added[1][2] == [6] * 60


def test_the_scheduler_is_left_empty(scenario):
    """The engine serves the next scenario as well: its runner must be told of the last that ended."""
    engine = PlayedEngine(tail=9)
    TextRun(engine, scenario, SCRIPT).run()
    assert not engine.has_requests()


@pytest.mark.parametrize(
    ("settings", "channels"),
    [
        ({"overlapped": "yes"}, {"accept.emitted"}),
        ({"pages": "few"}, {"accept.emitted"}),
        ({"prefix_cache": "yes"}, {"accept.emitted", "round.cached"}),
    ],
)
def test_a_text_is_all_that_is_shown(settings, channels, scenario):
    subject = subjects.VllmSubject(**settings)
    assert subject.channels(scenario) == channels
    assert (subject.limits.steering, subject.limits.own_preemption) == ("none", "pages" in settings)


@pytest.mark.parametrize(("pages", "expected"), [("enough", 12), ("few", 3)])
def test_few_pages_are_those_of_the_longest_request(pages, expected, scenario, monkeypatch):
    """A request of 64 tokens at most, four drafts, and vLLM's slots for four more: 74 slots, three pages of 32."""
    asked = []

    def scheduler(core: Any, scenario: Scenario) -> Any:
        asked.append(scenario.memory.pages)
        return core.scheduler

    running = SimpleNamespace(engine=PlayedEngine(), cache=SimpleNamespace(poison=lambda: None))
    monkeypatch.setattr(subjects, "fresh_scheduler", scheduler)
    subject = subjects.VllmSubject(pages=pages, overlapped="yes")
    monkeypatch.setattr(subject, "_started", lambda _: running)
    monkeypatch.setattr(subject, "_spec_of", lambda _: None)
    trace = subject.run(scenario, SCRIPT)
    assert asked == [expected]
    assert {one.channel for one in trace.observations} == trace.channels == {"accept.emitted"}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have making find this module in the place of vLLM."""
    monkeypatch.setattr(subjects.VllmSubject, "requires", ())
    triton = ModuleType("vllm.triton_utils")
    triton.HAS_TRITON = False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.triton_utils", triton)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("prefix_cache=true", "yes or no"),
        ("overlapped=1", "yes or no"),
        ("padded=false", "yes or no"),
        ("junk=maybe", "yes or no"),
        ("pages=Few", "enough or few"),
        ("pages=0", "enough or few"),
        ("room=5", "ample or none"),
        ("rotary=foo", "kernel or native"),
        ("runner=v3", "v1 or v2 or default"),
        ("runner=v2", "v1 or default, as V2 needs Triton and vLLM finds none (on a CPU)"),
        ("page_size=7", "a whole number, 16, 32 .. 256"),
        ("page_size=-32", "a whole number, 16, 32 .. 256"),
        ("page_size=abc", "a whole number, 16, 32 .. 256"),
    ],
)
@pytest.mark.usefixtures("registered")
def test_a_setting_that_is_none_of_its_values_is_refused(setting: str, expected: str):
    name, _, value = setting.partition("=")
    with pytest.raises(SettingError) as caught:
        made("vllm", {name: value})
    assert str(caught.value) == f"invalid --set {setting}: expected {expected}"


@pytest.mark.usefixtures("registered")
def test_its_name_says_what_was_set():
    assert made("vllm", {}).name == made("vllm", {"junk": "yes"}).name == "vllm"
    assert made("vllm", {"pages": "few", "overlapped": "yes"}).name == "vllm (overlapped=yes, pages=few)"
