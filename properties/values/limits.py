"""What a subject can run, as a value (docs/semantics.md, S-SUBJECT-1).

A scenario that asks for more is fitted (properties/fit.py); what follows for verdicts is in coverage/covered.py.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Meta
from msgspec.structs import force_setattr

from draftproof.properties.values.base import Value
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, Match
from draftproof.properties.values.scenario import VARIANTS, Positive, Scenario, Variant
from draftproof.properties.values.script import Finish

Arrivals = Literal["by step", "together", "serial"]
"""When requests may come: at any engine step, all before the first, or one after another, each served alone."""
Steering = Literal["drafts", "counts", "none"]
"""What a script can force: the drafts that a round verifies, only how many there are, or nothing."""
FirstDrafts = Literal["own round", "with prompt"]
"""When the first drafts are verified: in a round after the prompt's, or in the launch that runs the prompt's end."""
Models = Literal["probe", "checkpoint"]
Dtype = Literal["float32", "bfloat16", "float64"]


class Limits(Value, frozen=True, kw_only=True):
    """What a subject can run. The defaults are no limits at all; an empty tuple means any.

    `models` and `architectures` (`architectures[0]` of config.json), `drafts`, `dtypes` and `page_sizes` are what it
    takes; at most `max_rows` requests decode together, with at most `max_drafts` drafts each (0: any number).
    `unchained`: whether layers of an MTP draft can each take the target's hidden states; `matches`: of several places
    where an n-gram draft finds its suffix, which it can take.
    `controllers`: whether step counts may change from round to round as a scenario asks. `sampling`: whether requests
    may draw their tokens, with the random numbers of S-SAMPLE-4. `trees`: whether drafts may be trees (S-TREE).
    `penalties`, `grammars`, `logprobs`: whether requests may have some (S-PENALTY, S-GRAMMAR, S-SAMPLE-12).
    `first_drafts`: the first drafts are verified in a round of their own, or with the prompt. `allocation`: whether
    pages are taken exactly when they are reached, or some ahead; `chunks`: whether a prompt is cut as the scenario
    asks, or by a rule of its own. `preempts`: whether it may take a request's pages and prefill it again by a rule of
    its own, `preemption`: whether it does so by that of S-SCHED-8 where a scenario asks; `prefix_cache`: whether tokens
    of a prompt may be served from the entries of other requests by a rule of its own, `caching`: whether they are by
    that of S-CACHE where a scenario asks; `aborts`: whether requests may be aborted (S-SCHED-9); `ranks`: whether they
    may be spread over ranks (S-RANK), which a subject without `run_rank` serves one after another; `ends`: whether they
    may have a minimum of tokens, stop sequences, and ids of the model that end them or not (S-LIMIT-13 .. 15).
    `step_tokens`: whether a step has a budget of tokens (S-SCHED-10). `windows`: whether layers may have windows, and
    pages behind all of them go back (S-WINDOW); `mixed`: whether chunks and verify rows may share a launch (S-MIXED);
    `overlap`: whether its host may plan a step while the one before runs, as a scenario asks (S-OVERLAP);
    `handover`: whether one engine runs prompts for another (S-HANDOVER); `codes`: whether entries may be kept in fewer
    bits (S-KV); `images`: whether tokens may have three positions (S-MROPE). `persistent`: one run leaves something
    (free pages in another order, a cache) to the next. `variants` are the metamorphic changes that it can run; `finish`
    is what the round that ends a request commits (S-LIMIT-11); `start_seconds` is how long a model takes to load, which
    a first scenario may take besides.
    """

    models: tuple[Models, ...] = ("probe", "checkpoint")
    architectures: tuple[str, ...] = ()
    drafts: tuple[Algorithm, ...] = ALGORITHMS
    dtypes: tuple[Dtype, ...] = ()
    page_sizes: tuple[Positive, ...] = ()
    max_rows: Annotated[int, Meta(ge=0)] = 0
    max_drafts: Annotated[int, Meta(ge=0)] = 0
    arrivals: Arrivals = "by step"
    steering: Steering = "drafts"
    controllers: bool = True
    sampling: bool = True
    trees: bool = True
    penalties: bool = True
    grammars: bool = True
    logprobs: bool = True
    unchained: bool = True
    matches: tuple[Match, ...] = ("earliest", "latest")
    first_drafts: FirstDrafts = "own round"
    allocation: Literal["exact", "ahead"] = "exact"
    chunks: Literal["exact", "own"] = "exact"
    preempts: bool = False
    preemption: bool = True
    prefix_cache: bool = False
    caching: bool = True
    aborts: bool = True
    ends: bool = True
    step_tokens: bool = True
    mixed: bool = True
    overlap: bool = True
    handover: bool = True
    windows: bool = True
    codes: bool = True
    images: bool = True
    ranks: bool = True
    persistent: bool = False
    variants: tuple[Variant, ...] = VARIANTS
    finish: Finish = "cut"
    start_seconds: Annotated[float, Meta(ge=0)] = 0.0

    def __post_init__(self) -> None:
        """Take an empty tuple of models or drafts for all of them."""
        for name, all_of_them in (("models", get_args(Models)), ("drafts", ALGORITHMS)):
            if not getattr(self, name):
                force_setattr(self, name, all_of_them)


NO_LIMITS = Limits()


def finish_of(scenario: Scenario, limits: Limits) -> Finish:
    """Return what the last round of a request commits: all of it, where a device knows of no end (S-OVERLAP-4)."""
    return "uncut" if scenario.schedule.overlap else limits.finish
