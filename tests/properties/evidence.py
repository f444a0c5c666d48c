"""Passing pieces of evidence to break: an ideal subject serves four requests in shrinking batches on reused pages.

`STATIC`: a hybrid target, states committed by snapshot, drafts as planned. `ADAPTIVE`: states committed by replay,
drafts as a controller allows.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import msgspec

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features.tensor_parallel import with_tensor_ranks
from draftproof.properties.lib.paths import put_in
from draftproof.properties.validate import validate
from draftproof.properties.values.adaptive_steps import Adaptive
from draftproof.properties.values.channels import DISAGGREGATION_CHANNELS, OVERLAP_CHANNELS
from draftproof.properties.values.drafts import ALGORITHMS, DFlash, Draft, Eagle, Eagle3, Mtp, Ngram, Standalone
from draftproof.properties.values.grammar import Grammar, end_token
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import (
    Graphs,
    Linear,
    Memory,
    ProbeModel,
    PromptLogprobs,
    Ranks,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    States,
    TokenSpan,
    Variant,
)
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.tree import Tree, TreeShape
from tests.named import Nth
from tests.properties.ideal import IdealSubject

LINEAR = Linear(key_heads=1, value_heads=2, key_dim=3, value_dim=4, conv=3, start=True)
MODEL = ProbeModel(
    seed=7,
    layers=3,
    heads=4,
    kv_heads=2,
    key_dim=3,
    value_dim=5,
    lanes=6,
    vocab=41,
    layer_types=("linear_attention", "full_attention", "linear_attention"),
    linear=LINEAR,
)
HEAD = Eagle(seed=8, heads=3, kv_heads=3, key_dim=2, value_dim=4, lanes=5)


def request(arrival: int, prompt: int, budget: int, plans: str) -> Request:
    """`plans` lists drafts/accept of the rounds."""
    rounds = tuple(
        RoundPlan(num_drafts=int(drafts), num_correct=int(right)) for drafts, right in map(_split, plans.split())
    )
    return Request(arrival=arrival, prompt=tuple(range(3, 3 + prompt)), budget=budget, rounds=rounds)


def said(request: Request, *prompt: int) -> Request:
    """The same with another prompt."""
    return msgspec.structs.replace(request, prompt=prompt)


def _split(plan: str) -> list[str]:
    return plan.split("/")


STATIC = validate(
    Scenario(
        model=MODEL,
        draft=HEAD,
        steps=3,
        memory=Memory(page_size=3, pages=18, request_slots=3, max_len=30),
        graphs=Graphs(sizes=(2,)),
        schedule=Schedule(max_batch=3, chunk=4),
        states=States(checkpoint=2),
        requests=(
            request(0, 7, 9, "3/1 2/2 3/0 0/0"),
            request(0, 5, 12, "3/3 3/0 0/0 3/2"),
            request(1, 4, 6, "2/2 3/3"),
            request(9, 2, 6, "2/-1 3/3"),
        ),
    )
)
TWICE = msgspec.structs.replace(STATIC, schedule=Schedule(max_batch=3, chunk=4, services=2))
"""The same requests served again."""
_DENSE = msgspec.structs.replace(MODEL, layers=2, layer_types=(), linear=None)


def forced_tree(drafts: int, *parents: int, path: tuple[int, ...] = ()) -> RoundPlan:
    """A round of a tree of so many levels with these parents of rows; the rows of the path are right."""
    return RoundPlan(num_drafts=drafts, num_correct=len(path), shape=TreeShape(parents=parents, path=path))


_OWN_TREE, _NO_TREE = RoundPlan(num_drafts=3, num_correct=-1), RoundPlan(num_drafts=0, num_correct=0)
TREE = validate(
    msgspec.structs.replace(
        STATIC,
        model=_DENSE,
        states=States(),
        tree=Tree(topk=2, nodes=5),
        memory=Memory(page_size=3, pages=40, request_slots=3, max_len=30),
        requests=tuple(
            msgspec.structs.replace(one, rounds=rounds)
            for one, rounds in zip(
                STATIC.requests,
                (
                    (forced_tree(3, 0, 0, 1, 2, 4, path=(2, 4, 5)), forced_tree(2, 0, 0, 1, path=()), _OWN_TREE),
                    (forced_tree(3, 0, 1, 2, path=(1, 2, 3)), _NO_TREE, forced_tree(3, 0, 0, 2, 2, path=(2,))),
                    (_OWN_TREE, forced_tree(3, 0, 0, 1, 1, 2, path=(1, 4))),
                    (forced_tree(3, 0, 0, 1, 1, 3, path=()), _OWN_TREE),
                ),
                strict=True,
            )
        ),
    )
)
"""Drafts that are trees: forced ones of which a walk ends at the root, inside and at a leaf, and proposed ones."""
_SWINGS = "3/3 3/3 3/0 3/0 3/0 3/3"
ADAPTIVE = validate(
    msgspec.structs.replace(
        STATIC,
        states=States(commit="replay", checkpoint=3),
        adaptive_steps=Adaptive(initial=1, candidates=(1, 3), alpha=0.5, interval=1, warmup=1, down=0.0),
        schedule=Schedule(max_batch=3, chunk=4, draft_batch=2),
        memory=Memory(page_size=3, pages=24, request_slots=3, max_len=30),
        requests=(request(0, 7, 14, _SWINGS), request(0, 5, 17, _SWINGS), request(5, 3, 4, "3/1")),
    )
)


def drafting(draft: Draft, base: Scenario = STATIC) -> Scenario:
    """The same with another draft."""
    return validate(msgspec.structs.replace(base, draft=draft))


_SIZES = {"seed": 8, "heads": 3, "kv_heads": 3, "key_dim": 2, "value_dim": 4, "lanes": 5}
CHAIN = drafting(Mtp(**_SIZES, layers=3))
UNCHAINED = drafting(Mtp(**_SIZES, layers=4, chain=False))
BLOCK = drafting(DFlash(**_SIZES, layers=2, features=(2, 0)))
STANDALONE = drafting(Standalone(**_SIZES, layers=2))
WIDE = drafting(Eagle3(**_SIZES, features=(2, 0), head_vocab=4, own_embedding=True))
# A small vocabulary, so that whatever a target says has been said before.
NGRAM = drafting(
    Ngram(max_n=3),
    msgspec.structs.replace(
        STATIC,
        model=msgspec.structs.replace(MODEL, vocab=5),
        requests=(
            said(request(0, 7, 9, "3/1 2/-1 3/-1 0/0"), 3, 4, 2, 1, 3, 4, 2),
            said(request(0, 5, 12, "3/-1 3/0 3/1 3/-1"), 1, 1, 1, 1, 1),
            said(request(1, 4, 6, "2/2 3/-1"), 0, 3, 0, 3),
            said(request(9, 2, 9, "2/-1 3/3 3/-1"), 4, 2),
        ),
    ),
)
_OWN = {"eagle": STATIC, "mtp": CHAIN, "dflash": BLOCK, "ngram": NGRAM, "standalone": STANDALONE, "eagle3": WIDE}
OF_DRAFTS = {name: _OWN[name] for name in ALGORITHMS}
"""One scenario of each algorithm."""
CHANGING = msgspec.structs.replace(
    ADAPTIVE,
    model=NGRAM.model,
    requests=(
        said(request(0, 7, 14, "3/3 3/3 3/-1 3/0 3/0 3/0"), 3, 4, 2, 1, 3, 4, 2),
        said(request(0, 5, 17, "3/3 3/3 3/0 3/0 3/0 3/-1"), 1, 2, 1, 2, 1),
        said(request(5, 3, 4, "3/-1"), 0, 3, 0),
    ),
)
"""Steps that change, and among the rounds some that nothing is forced in."""
DRAWN = msgspec.structs.replace(
    STANDALONE,
    requests=tuple(
        msgspec.structs.replace(
            one,
            sampling=Sampling(temperature=2.0, seed=seed, draft="sampled"),
            logprobs=2,
            prompt_logprobs=PromptLogprobs(top=2),
        )
        for seed, one in enumerate(STANDALONE.requests)
    ),
)
"""Tokens that are drawn, by the draft as well."""
CONSTRAINED = validate(
    msgspec.structs.replace(
        STATIC,
        requests=tuple(
            msgspec.structs.replace(one, grammar=Grammar(pattern="((ab?|cc){3})*"), stops=(end_token(MODEL.vocab),))
            for one in STATIC.requests
        ),
    )
)
"""Requests with a grammar."""
_CHAIN_MEMORY = Memory(page_size=3, pages=40, request_slots=3, max_len=30)
BESIDE_TREE = validate(
    msgspec.structs.replace(
        STATIC,
        model=_DENSE,
        states=States(),
        memory=_CHAIN_MEMORY,
        variant="chain_as_tree",
        requests=(
            msgspec.structs.replace(
                STATIC.requests[0],
                grammar=CONSTRAINED.requests[0].grammar,
                stops=CONSTRAINED.requests[0].stops,
                prompt_logprobs=PromptLogprobs(top=1),
            ),
            msgspec.structs.replace(STATIC.requests[1], sampling=Sampling(temperature=2.0, seed=3), logprobs=2),
            *STATIC.requests[2:],
        ),
    )
)
"""Chains that are compared with trees of one beam: drawn, constrained and greedy ones."""
MATCHES_BESIDE_TREE = validate(
    msgspec.structs.replace(
        NGRAM,
        model=msgspec.structs.replace(_DENSE, vocab=5),
        states=States(),
        memory=_CHAIN_MEMORY,
        variant="chain_as_tree",
    )
)
MATCHES = validate(
    msgspec.structs.replace(
        TREE,
        model=msgspec.structs.replace(_DENSE, vocab=5, logit_bits=1),
        draft=Ngram(max_n=2),
        requests=tuple(
            msgspec.structs.replace(one, prompt=prompt)
            for one, prompt in zip(
                TREE.requests,
                ((0, 1, 2, 0, 1, 3, 0), (0, 0, 1, 0, 2), (1, 2, 0, 1, 0, 0, 1), (0, 2, 4, 0, 2, 3)),
                strict=True,
            )
        ),
    )
)
"""Matches that are merged in a trie."""
SCENARIOS = (*OF_DRAFTS.values(), ADAPTIVE, UNCHAINED, TWICE, TREE, DRAWN, CONSTRAINED, MATCHES)


PREEMPTED = validate(
    msgspec.structs.replace(
        STATIC,
        memory=msgspec.structs.replace(STATIC.memory, pages=8),
        schedule=msgspec.structs.replace(STATIC.schedule, preemption=True),
    )
)


@lru_cache
def by_engine(scenario: Scenario) -> Evidence:
    """A run of the engine."""
    return lockstep(EngineSubject(), scenario)


def with_aborts(scenario: Scenario, *steps: int | None) -> Scenario:
    """The same with requests that are aborted in these steps."""
    both = zip(scenario.requests, steps, strict=True)
    return validate(
        msgspec.structs.replace(
            scenario, requests=tuple(msgspec.structs.replace(one, abort_at=step) for one, step in both)
        )
    )


ABORTED = with_aborts(STATIC, 4, 1, 1, None)
"""Between two rounds, in its prefill, and while it waits."""
ABORTED_AGAIN = with_aborts(PREEMPTED, None, 8, 5, 11)
"""In a prefill that is a second one, while it waits for that, and between two rounds."""


CAPTURED = validate(put_in(STATIC, "graphs", capture=True, at_start=True))
"""Whose graphs are captured before the first step."""


ENDED = validate(
    msgspec.structs.replace(
        STATIC,
        eos=(1,),
        requests=tuple(
            msgspec.structs.replace(one, min_tokens=3, stop_at=3, stop_sequences_at=(TokenSpan(first=2, last=4),))
            for one in STATIC.requests
        ),
    )
)
"""With a minimum, a stop sequence, and an id of the model."""


BUDGETED = validate(put_in(STATIC, "schedule", token_budget=4))
"""With a budget of tokens for a step, fewer than a chunk and a round."""


MIXED = validate(
    msgspec.structs.replace(
        STATIC,
        model=msgspec.structs.replace(MODEL, layer_types=(), linear=None),
        states=States(),
        graphs=msgspec.structs.replace(STATIC.graphs, tokens=(5, 12)),
        schedule=msgspec.structs.replace(STATIC.schedule, mixed=True, services=1),
    )
)
"""Dense, with chunks beside verify rows in one launch."""


def mixed_too(scenario: Scenario) -> Scenario:
    """Return the scenario with a mixed schedule, as its only change."""
    return put_in(scenario, "schedule", mixed=True)


OVERLAPPED = validate(
    msgspec.structs.replace(
        STATIC,
        memory=msgspec.structs.replace(STATIC.memory, page_size=2, pages=2 * STATIC.memory.pages),
        schedule=msgspec.structs.replace(
            STATIC.schedule, overlap=("late", "late", "early", "late", "none"), services=1
        ),
    )
)
"""With a host that plans a step while the one before runs, and waits for every fifth."""


def overlapped_too(scenario: Scenario) -> Scenario:
    """Return the scenario with a host that is a step behind, as its only change."""
    schedule = msgspec.structs.replace(scenario.schedule, overlap=("late", "early"), services=1)
    return msgspec.structs.replace(scenario, schedule=schedule)


DISAGGREGATED = validate(put_in(STATIC, "schedule", disaggregation=True, services=1, max_batch=1))
"""With two engines, of which the one that decodes takes one request at a time."""


_SHARED = (3, 1, 4, 1, 5, 9, 2, 6)
CACHED = validate(
    msgspec.structs.replace(
        PREEMPTED,
        model=msgspec.structs.replace(MODEL, layer_types=(), linear=None),
        memory=msgspec.structs.replace(PREEMPTED.memory, page_size=2, pages=12),
        states=States(),
        schedule=msgspec.structs.replace(PREEMPTED.schedule, prefix_cache=True, services=1),
        requests=tuple(
            msgspec.structs.replace(one, prompt=_SHARED[:count], arrival=arrival, budget=6, stop_at=-1)
            for one, count, arrival in zip(STATIC.requests, (8, 7, 8, 5), (0, 1, 9, 12), strict=True)
        ),
    )
)
"""Dense, with prompts that begin alike, and fewer pages than all requests come to own."""


CACHED_STATES = validate(
    msgspec.structs.replace(
        CACHED,
        model=MODEL,
        states=States(commit="replay", checkpoint=2),
        memory=msgspec.structs.replace(CACHED.memory, checkpoint_slots=3),
    )
)
"""The same of a hybrid, whose states are kept at the end of every page."""
OF_ENGINE = {
    "preempted": PREEMPTED,
    "cached": CACHED,
    "cached states": CACHED_STATES,
    "aborted": ABORTED,
    "budgeted": BUDGETED,
    "mixed": MIXED,
    "disaggregated": DISAGGREGATED,
    "overlapped": OVERLAPPED,
}
"""What an engine alone is asked for, by its name."""


@lru_cache
def ranked(*ranks: int) -> tuple[Evidence, ...]:
    """A run of each of two ranks, which serve these of the four requests; a rank without any is idle all the time."""
    requests = tuple(msgspec.structs.replace(one, rank=rank) for one, rank in zip(STATIC.requests, ranks, strict=True))
    scenario = validate(msgspec.structs.replace(STATIC, requests=requests, ranks=Ranks(data=2)))
    return tuple(replace(one, ranks=()) for one in lockstep(EngineSubject(), scenario).ranks)


@lru_cache
def tensor_ranked() -> Evidence:
    """A run of the second of two tensor-parallel ranks, which share target and draft."""
    return lockstep(EngineSubject(), validate(with_tensor_ranks(Nth(0), STATIC))).ranks[1]


@lru_cache
def evidence(variant: Variant = "none", scenario: Scenario = STATIC) -> Evidence:
    """A run without a fault; with a variant, its second run too.

    The ideal subject has no prefix cache, and takes pages for the chain that an n-gram draft found.
    """
    own = scenario.schedule.prefix_cache or scenario.schedule.mixed or variant == "chain_as_tree"
    own = own or bool(scenario.schedule.overlap)
    subject = EngineSubject() if own else IdealSubject()
    return lockstep(subject, msgspec.structs.replace(scenario, variant=variant))


def evidence_of(channel: str) -> Evidence:
    """One that reports on a channel."""
    if channel == "verify.packed":
        return by_engine(MIXED)
    if channel == "rank.collectives":
        return ranked(0, 0, 1, 0)[1]
    known = (evidence(scenario=scenario) for scenario in SCENARIOS)
    rest = (
        OVERLAPPED
        if channel in OVERLAP_CHANNELS
        else DISAGGREGATED
        if channel in DISAGGREGATION_CHANNELS
        else CACHED_STATES
    )
    return next((of for of in known if of.subject.channel(channel)), None) or by_engine(rest)


def with_observations(of: Evidence, observations: Iterable[Observation]) -> Evidence:
    """The same evidence with another trace of the subject."""
    trace = Trace(of.subject.subject, of.subject.channels, tuple(observations))
    return replace(of, subject=trace)
