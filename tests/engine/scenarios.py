"""Small scenarios for the engine's own tests."""

from typing import Any

from draftproof.engine.stages import GenerationRequest
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import Eagle
from draftproof.properties.values.scenario import Graphs, Memory, ProbeModel, Request, RoundPlan, Scenario, Schedule

MODEL = ProbeModel(seed=7, layers=2, heads=4, kv_heads=2, key_dim=3, value_dim=5, lanes=6, vocab=41)
HEAD = Eagle(seed=8, heads=3, kv_heads=3, key_dim=2, value_dim=4, lanes=5)


_PLAIN = {"budget": 8, "stop": frozenset[int](), "num_drafts_wanted": (1,)}


def request(
    arrival: int = 0, prompt: int = 7, budget: int = 9, plans: str = "3/1 2/2 3/0 0/0", stop_at: int = -1
) -> Request:
    """`plans` lists drafts/accept of the rounds."""
    rounds = tuple(RoundPlan(num_drafts=int(w.split("/")[0]), num_correct=int(w.split("/")[1])) for w in plans.split())
    tokens = tuple((5 * arrival + 3 * i + prompt) % MODEL.vocab for i in range(prompt))
    return Request(arrival=arrival, prompt=tokens, budget=budget, rounds=rounds, stop_at=stop_at)


def scenario(*requests: Request, sizes: tuple[int, ...] = (2, 4), **changes) -> Scenario:
    """Four slots, pages of 3, at most three in a batch; three drafts."""
    values = {
        "model": MODEL,
        "draft": HEAD,
        "steps": 3,
        "memory": Memory(page_size=3, pages=40, request_slots=4, max_len=30),
        "graphs": Graphs(sizes=sizes),
        "schedule": Schedule(max_batch=3, chunk=4),
        "requests": requests or (request(),),
    }
    return validate(Scenario(**{**values, **changes}))


def generation(number: int = 0, prompt: tuple[int, ...] = (1, 2), **changes: Any) -> GenerationRequest:
    """A request as the engine has it, of eight tokens without drafts."""
    return GenerationRequest(**{"id": number, "arrival": 0, "prompt": prompt, **_PLAIN, **changes})
