"""Scenarios for the tests of the reference."""

import random
from typing import Any, Literal

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS, DFlash, Draft, Eagle, Eagle3, Mtp, Ngram, Standalone
from draftproof.properties.values.scenario import (
    Graphs,
    LayerType,
    Linear,
    Memory,
    ProbeModel,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    States,
)

BRIEF = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
_SIZES = {"heads": 3, "kv_heads": 1, "key_dim": 2, "value_dim": 4, "lanes": 6}
HEAD = Eagle(seed=5, **_SIZES)
CHAIN = Mtp(seed=6, layers=5, **_SIZES)
BLOCK = DFlash(seed=7, layers=2, features=(0,), **_SIZES | {"heads": 4, "kv_heads": 2})
SMALL = Standalone(seed=8, layers=2, **_SIZES)
NGRAM = Ngram(max_n=3)
MATCHES: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")
WIDE = Eagle3(seed=9, features=(0,), **_SIZES)
DRAFTS: dict[str, Draft] = {
    "eagle": HEAD,
    "mtp": CHAIN,
    "dflash": BLOCK,
    "ngram": NGRAM,
    "standalone": SMALL,
    "eagle3": WIDE,
}
LINEAR = Linear(key_heads=1, value_heads=2, key_dim=3, value_dim=2, conv=3, start=True)


def model(**changes: int) -> ProbeModel:
    sizes = {"layers": 2, "heads": 4, "kv_heads": 2, "key_dim": 3, "value_dim": 5, "lanes": 7, "vocab": 23} | changes
    return ProbeModel(seed=3, **sizes)


def hybrid(*types: LayerType, of: ProbeModel | None = None) -> ProbeModel:
    """The same with layers of these types; the linear ones start from a state that is not zero."""
    return msgspec.structs.replace(of or model(), layers=len(types), layer_types=types, linear=LINEAR)


def scenario(
    *requests: Request,
    steps: int = 4,
    max_len: int = 64,
    of: ProbeModel | None = None,
    states: States | None = None,
    draft: Draft = HEAD,
) -> Scenario:
    return validate(
        Scenario(
            model=of or model(),
            draft=draft,
            steps=steps,
            memory=Memory(page_size=4, pages=64, request_slots=8, max_len=max_len),
            graphs=Graphs(),
            schedule=Schedule(max_batch=4, chunk=8),
            requests=requests,
            states=states or States(),
        )
    )


def request(
    prompt: int = 5, budget: int = 12, rounds: tuple[tuple[int, int], ...] = ((3, 1),), stop: int = -1
) -> Request:
    plans = tuple(RoundPlan(num_drafts=drafts, num_correct=right) for drafts, right in rounds)
    return Request(arrival=0, prompt=tuple(range(1, prompt + 1)), budget=budget, rounds=plans, stop_at=stop)


def drawn_plan(rng: random.Random, steps: int) -> RoundPlan:
    drafts = rng.randint(0, steps)
    return RoundPlan(num_drafts=drafts, num_correct=rng.choice([-1, rng.randint(-1, drafts)]))


def drawn_form(rng: random.Random, vocab: int) -> dict[str, Any]:
    """What a draft of entries takes, hands on, and has of its own."""
    flags = {name: rng.random() < 0.4 for name in ("own_embedding", "own_head", "masks_first")}
    sides = {name: rng.choice(["after_norm", "before_norm"]) for name in ("takes", "handed")}
    return {**flags, **sides, "head_vocab": rng.choice([0, rng.randint(2, vocab)])}


def drawn_draft(rng: random.Random, layers: int, vocab: int, *kinds: str) -> Draft:
    """Of one of these kinds, for a target of `layers` and `vocab`."""
    kind = rng.choice(kinds or ALGORITHMS)
    if kind == "mtp":
        return msgspec.structs.replace(CHAIN, chain=rng.random() < 0.7, **drawn_form(rng, vocab))
    if kind == "eagle":
        return msgspec.structs.replace(HEAD, **drawn_form(rng, vocab))
    if kind == "dflash":
        features = tuple(rng.sample(range(layers), rng.randint(1, layers)))
        return msgspec.structs.replace(BLOCK, layers=rng.randint(1, 2), features=features)
    if kind == "eagle3":
        features = tuple(rng.sample(range(layers), rng.randint(1, layers)))
        own, kept = rng.random() < 0.5, rng.choice([0, 2, vocab // 2 + 1])
        return msgspec.structs.replace(WIDE, features=features, own_embedding=own, head_vocab=kept)
    if kind == "ngram":
        return Ngram(max_n=(most := rng.randint(1, 3)), min_n=rng.randint(1, most), match=rng.choice(MATCHES))
    return DRAFTS[kind]


def drawn(seed: int, *kinds: str) -> Scenario:
    """Few tokens and few logit bits, so that ties, repeated tokens and early stops are frequent."""
    rng = random.Random(seed)
    steps = rng.randint(1, 5)
    of = model(
        layers=rng.randint(1, 2),
        vocab=rng.randint(4, 12),
        logit_bits=rng.choice([1, 2, 23]),
        agreement=rng.choice([0, 128, 256]),
    )
    requests = [
        Request(
            arrival=0,
            prompt=tuple(rng.randrange(of.vocab) for _ in range(rng.randint(1, 7))),
            budget=rng.randint(1, 15),
            rounds=tuple(drawn_plan(rng, steps) for _ in range(rng.randint(1, 4))),
            stop_at=rng.choice([-1, -1, rng.randint(0, 9)]),
        )
        for _ in range(rng.randint(1, 2))
    ]
    max_len = rng.randint(8, 24)
    if rng.random() < 0.5:
        types = rng.choice([("linear_attention", "full_attention"), ("full_attention", "linear_attention")])
        of = hybrid(*types, *rng.choice([(), ("linear_attention",)]), of=of)
    states = States(commit=rng.choice(["snapshot", "replay"]), checkpoint=rng.choice([0, 1, 3]))
    draft = drawn_draft(rng, of.layers, of.vocab, *kinds)
    return scenario(*requests, steps=steps, max_len=max_len, of=of, states=states, draft=draft)


def scenarios(*kinds: str) -> st.SearchStrategy[Scenario]:
    """Of drafts of these kinds, or of any. Drawn from one seed each: Hypothesis' own lists and integers are mostly
    short and small, as are their runs."""
    return st.integers(0, 2**32 - 1).map(lambda seed: drawn(seed, *kinds))
