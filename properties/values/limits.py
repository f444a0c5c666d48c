"""What a subject can run, as a value (docs/semantics/subjects.md, S-SUBJECT-1).

A scenario that asks for more is fitted (properties/fit.py); what follows for verdicts is in coverage/covered.py.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Meta
from msgspec.structs import force_setattr

from draftproof.properties.lib.base import Value
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
    """What a subject can run. An empty tuple means any, but of `features`, which it means none of.

    `models` and `architectures` (`architectures[0]` of config.json), `drafts`, `dtypes` and `page_sizes` are what it
    takes; at most `max_rows` requests decode together, with at most `max_drafts` drafts each (0: any number).
    `features` names the features (properties/features/) that scenarios may have: what it does not name is taken away.
    `unchained`: whether layers of an MTP draft can each take the target's hidden states; `matches`: of several places
    where an n-gram draft finds its suffix, which it can take. `first_drafts`: the first drafts are verified in a round
    of their own, or with the prompt. `allocation`: whether pages are taken exactly when they are reached, or some
    ahead; `chunks`: whether a prompt is cut as the scenario asks, or by a rule of its own. `preempts`: whether it may
    take a request's pages and prefill it again by a rule of its own, `serves_prefixes`: whether tokens of a prompt may
    be served from the entries of other requests by a rule of its own. `persistent`: one run leaves something (free
    pages in another order, a cache) to the next. `variants` are the metamorphic changes that it can run; `finish` is
    what the round that ends a request commits (S-LIMIT-11); `start_seconds` is how long a model takes to load, which a
    first scenario may take besides.
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
    features: tuple[str, ...] | Literal["all"] = ()
    unchained: bool = True
    matches: tuple[Match, ...] = ("earliest", "latest")
    first_drafts: FirstDrafts = "own round"
    allocation: Literal["exact", "ahead"] = "exact"
    chunks: Literal["exact", "own"] = "exact"
    preempts: bool = False
    serves_prefixes: bool = False
    persistent: bool = False
    variants: tuple[Variant, ...] = VARIANTS
    finish: Finish = "cut"
    start_seconds: Annotated[float, Meta(ge=0)] = 0.0

    def __post_init__(self) -> None:
        """Take an empty tuple of models or drafts for all of them."""
        for name, all_of_them in (("models", get_args(Models)), ("drafts", ALGORITHMS)):
            if not getattr(self, name):
                force_setattr(self, name, all_of_them)

    def takes(self, feature: str) -> bool:
        """Return whether scenarios may have a feature."""
        return self.features == "all" or feature in self.features


NO_LIMITS = Limits(features="all")


def finish_of(scenario: Scenario, limits: Limits) -> Finish:
    """Return what the last round of a request commits: all of it, where a device knows of no end (S-OVERLAP-4)."""
    return "uncut" if scenario.schedule.overlap else limits.finish
