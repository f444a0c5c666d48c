"""Bins that cannot be hit, each with the reason.

A rule names some points, and values of each: a bin in which every one of these points has one of these values is
impossible. So one rule serves every cross that has its points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from draftproof.properties.coverage.points import POINTS, split
from draftproof.properties.values.drafts import KINDS, proposing
from draftproof.properties.values.scenario import WRONG


class Rule(NamedTuple):
    """`where`: the values that exclude each other, by point."""

    because: str
    where: Mapping[str, tuple[str, ...]]

    def excludes(self, values: Mapping[str, str]) -> bool:
        """Return whether a bin with these values is impossible by this rule."""
        return all(values.get(point) in excluded for point, excluded in self.where.items())


def _but(point: str, *values: str) -> tuple[str, ...]:
    """Return all values of a point but these."""
    return tuple(value for value in POINTS[point] if value not in values)


_NONE, _SAME_SIZE = ("no drafts",), ("fewer rows", "more rows")
_UNBOUND = ("eager", "oversized")
RULES: tuple[Rule, ...] = (
    Rule("without drafts K is 0", {"accept": _NONE, "K": _but("K", "0")}),
    Rule("with drafts K is not 0", {"accept": _but("accept", *_NONE), "K": ("0",)}),
    Rule("one draft is right or wrong, never in part", {"accept": ("partial",), "K": ("1",)}),
    Rule(
        "a chain of one layer has one proposal, never right in part", {"accept": ("partial",), "chain": ("one layer",)}
    ),
    Rule("without a wrong draft there is no way to be wrong", {"accept": ("no drafts", "all"), "wrong": WRONG}),
    Rule("without drafts no row is behind another", {"accept": _NONE, "window": ("left",)}),
    Rule("no draft reaches no other page", {"accept": _NONE, "crossing": ("one", "more")}),
    Rule("a round without drafts has no proposals", {"accept": _NONE, "proposals": ("forced", "own")}),
    Rule("a round with drafts has proposals", {"accept": _but("accept", *_NONE), "proposals": ("none",)}),
    Rule(
        "a round without drafts yields one token, and there was room for it",
        {"accept": _NONE, "cut": _but("cut", "whole")},
    ),
    Rule(
        "nothing accepted yields one token, and there was room for it",
        {"accept": ("none",), "cut": _but("cut", "whole")},
    ),
    Rule(
        "only a round that accepts all of its drafts fills max_len beyond the last token",
        {"accept": _but("accept", "all"), "cut": ("max_len",)},
    ),
    Rule(
        "one token completes one multiple at most", {"accept": ("no drafts", "none"), "checkpoint": ("two and more",)}
    ),
    Rule("a dense target has no states", {"layers": ("dense",), "checkpoint": POINTS["checkpoint"]}),
    Rule("a dense target has no states", {"layers": ("dense",), "state": POINTS["state"]}),
    Rule("a dense target has one way to commit", {"layers": ("dense",), "variant": ("other_commit",)}),
    Rule("without drafts there is no block", {"accept": _NONE, "block": ("cut", "whole")}),
    Rule("with drafts there is a block", {"accept": _but("accept", *_NONE), "block": ("none",)}),
    Rule("what was not found is not verified", {"accept": _but("accept", *_NONE), "match": ("nothing",)}),
    Rule("what was found is verified", {"accept": _NONE, "match": _but("match", "nothing")}),
    Rule("only n-gram drafts find fewer", {"draft": _but("draft", *proposing("lookup")), "limit": ("found",)}),
    Rule(
        "what looks drafts up needs all tokens in time",
        {"draft": proposing("lookup"), "delay": _but("delay", "no")},
    ),
    Rule("a lookup has no layers", {"draft": proposing("lookup"), "windows": ("draft's", "both")}),
    Rule("a lookup has no entries", {"draft": proposing("lookup"), "draft entries": POINTS["draft entries"]}),
    Rule(
        "not every draft can be drawn",
        {"draft": tuple(kind.name for kind in KINDS if not kind.draws), "drawn": ("yes",)},
    ),
    Rule(
        "not every draft can be a tree",
        {"draft": tuple(kind.name for kind in KINDS if not kind.trees), "topk": POINTS["topk"]},
    ),
    Rule("no draft was drawn or is an argmax where none is", {"accept": _NONE, "drawn": POINTS["drawn"]}),
    Rule("without drafts none is in the text", {"accept": _NONE, "penalty": ("other by draft",)}),
    Rule("without drafts a round has one row", {"accept": _NONE, "minimum": ("in window", "other by row")}),
    Rule("a tree has proposals", {"proposals": ("none",), "path": POINTS["path"]}),
    Rule("one beam has one branch", {"topk": ("1",), "path": ("other branch", "other to its end")}),
    Rule("on pages of one entry all that moves leaves its page", {"page size": ("1",), "moved": ("in a page",)}),
    Rule("rows of which one has no drafts are equal or have zero among them", {"accept": _NONE, "mix": ("unequal",)}),
    Rule("without padding the size is the number of rows", {"rows": _UNBOUND, "bucket": _SAME_SIZE}),
    Rule("rows that fill their size are no fewer than before in it", {"rows": ("exact",), "bucket": ("fewer rows",)}),
    Rule("a single row fits every size", {"rows": ("oversized",), "batch": ("1",)}),
    Rule("graphs against eager runs take graphs", {"rows": ("eager",), "variant": ("graph_vs_eager",)}),
    Rule("padding against none takes sizes", {"rows": ("eager",), "variant": ("padded_vs_exact",)}),
    Rule("other sizes take sizes", {"rows": ("eager",), "variant": ("other_bucket",)}),
    Rule(
        "without a controller one step count is in force",
        {"control": ("fixed", "draft batch"), "switch": ("up", "down")},
    ),
)


@lru_cache(maxsize=4096)
def impossible(name: str) -> str:
    """Return why a bin cannot be hit, "" if it can. Raises ValueError for what is no bin's name."""
    return reason(split(name)[1])


def reason(values: Mapping[str, str], rules: Sequence[Rule] = RULES) -> str:
    """Return the reason of the first rule by which values of points exclude each other, "" if none does."""
    return next((rule.because for rule in rules if rule.excludes(values)), "")
