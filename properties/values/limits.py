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
    """What a subject can run: scenarios are fitted to it (S-SUBJECT-2). It is believed.

    An empty tuple means any, but of `features` and `variants`, of which it means none.
    """

    models: tuple[Models, ...] = ("probe", "checkpoint")
    """The kinds of target that it takes: generated probes, or Hugging Face checkpoints."""
    architectures: tuple[str, ...] = ()
    """The checkpoints that it takes, each as `architectures[0]` of its config.json."""
    drafts: tuple[Algorithm, ...] = ALGORITHMS
    """The draft algorithms that it has."""
    dtypes: tuple[Dtype, ...] = ()
    """The dtypes in which it runs a checkpoint; the first one takes the place of a dtype that it has not."""
    page_sizes: tuple[Positive, ...] = ()
    """The page sizes that it has, in tokens."""
    pages: Annotated[int, Meta(ge=0)] = 0
    """The pages of its pool, where their number is its own; 0 means that it takes as many as a scenario has."""
    max_rows: Annotated[int, Meta(ge=0)] = 0
    """The most requests that decode in one batch; 0 means any number."""
    max_drafts: Annotated[int, Meta(ge=0)] = 0
    """The most drafts of a round, of a tree the largest depth; 0 means any number."""
    fixed_drafts: Annotated[int, Meta(ge=0)] = 0
    """The number of drafts of every round, whatever is asked for or left (S-FOLLOW-7); 0 means S-LIMIT-4."""
    arrivals: Arrivals = "by step"
    """When requests can come: at a chosen engine step, all together, or one after another."""
    steering: Steering = "drafts"
    """What a script can force of a round: its drafts, only their number, or nothing."""
    features: tuple[str, ...] | Literal["all"] = ()
    """The features that scenarios may have, by name (properties/features/); each other one is taken away."""
    unchained: bool = True
    """Whether the layers of an MTP draft can each take the target's hidden states."""
    matches: tuple[Match, ...] = ("earliest", "latest")
    """Which of several earlier places an n-gram draft can take its continuation from."""
    first_drafts: FirstDrafts = "own round"
    """Where the first drafts are verified: in a round of their own, or with the prompt's end (S-FOLLOW-6)."""
    allocation: Literal["exact", "ahead"] = "exact"
    """Whether a page is taken exactly when its first token is reached, or some rounds ahead."""
    chunks: Literal["exact", "own"] = "exact"
    """Whether a prompt is cut as the scenario asks, or by a rule of the subject's own (S-SCHED-7)."""
    own_preemption: bool = False
    """Whether it may take a request's pages and prefill it again, by a rule of its own (S-SCHED-6)."""
    own_prefix_cache: bool = False
    """Whether tokens of a prompt may come from entries of other requests, by a rule of its own (S-SCHED-5)."""
    persistent: bool = False
    """Whether a run leaves something to the next one, such as a cache, or free pages in another order."""
    variants: tuple[Variant, ...] = VARIANTS
    """The variants, runs with one change that must change nothing, that it can run."""
    finish: Finish = "cut"
    """What the round that ends a request commits: all that it emits but the last token ("cut"), all that was accepted
    ("uncut", S-LIMIT-11), or all that it emits but a last token that was no draft ("token", S-LIMIT-19)."""
    start_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """The seconds that loading a model takes, which the first scenario may take besides its own."""

    def __post_init__(self) -> None:
        """Take an empty tuple of models or drafts for all of them."""
        for name, all_of_them in (("models", get_args(Models)), ("drafts", ALGORITHMS)):
            if not getattr(self, name):
                force_setattr(self, name, all_of_them)

    @property
    def chooses_drafts(self) -> bool:
        """Whether a round has as many drafts as the subject likes (S-FOLLOW-7)."""
        return self.steering == "none" or self.fixed_drafts > 0

    def takes(self, feature: str) -> bool:
        """Return whether scenarios may have a feature."""
        return self.features == "all" or feature in self.features


NO_LIMITS = Limits(features="all")


def num_accepted(right: int, emitted: int, limits: Limits) -> int:
    """Return how many of a round's right drafts it accepts: a loop of tokens looks at no more than it emits."""
    return min(right, emitted) if limits.finish == "token" else right


def finish_of(scenario: Scenario, limits: Limits) -> Finish:
    """Return what the last round of a request commits: all of it, where a device knows of no end (S-OVERLAP-4)."""
    return "uncut" if scenario.schedule.overlap else limits.finish
