"""What functional coverage is measured over: coverpoints with their bins, and the crosses of them.

`P` page size, `K` drafts of a round, a of them accepted, n the context length before it, `M` the checkpoint interval.
A bin is named "<cross>: <point>=<value>, <point>=<value>"; a coverpoint by itself is a cross of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from draftproof.properties.evidence.ends import ENDS
from draftproof.properties.values.drafts import ALGORITHMS, KINDS, Algorithm, Proposes, proposing
from draftproof.properties.values.scenario import VARIANTS, WRONG

_FIRST = "first round"
_ACCEPTS = ("no drafts", "none", "partial", "all")
REQUEST_POINTS: dict[str, tuple[str, ...]] = {
    "draft": ALGORITHMS,
    "layers": ("dense", "snapshot", "replay"),
    "page size": ("1", "2", "3", "4", "5 to 7", "8 and more"),
    # A chain beside its tree is counted on its own: few drafts have one.
    "variant": tuple(name for name in ("none", *VARIANTS) if name not in ("chain_as_tree", "alone")),
    # Off: graphs as they ship, in the run itself or in the run of the variant.
    "taps": ("on", "off", "on and off"),
    "poison": ("0", "1"),
    "control": ("fixed", "adaptive", "draft batch", "adaptive and draft batch"),
    # What a state slot begins with.
    "start": ("zero", "other"),
    "chain": ("one layer", "chained", "unchained", "layers to spare"),
    # Of a draft of entries (token, hidden): what it takes, hands on, and has of its own.
    "takes": ("after_norm", "before_norm"),
    "handed": ("after_norm", "before_norm"),
    "embedding": ("target's", "own"),
    "head": ("target's", "own"),
    "vocabulary": ("target's", "other order", "reduced"),
    "first embedding": ("seen", "masked"),
    # Sizes that are equal here and differ in most models.
    "keys": ("other than values", "as values"),
    "state shape": ("oblong", "square"),
    "draft width": ("other", "target's"),
    "vocabulary size": ("to 61", "more"),
    # Tokens of a request at its end; its stop tokens, and which of them came.
    "length": ("to 8", "to 16", "to 32", "to 64", "to 128", "to 256", "to 512", "more"),
    "stops": ("none", "one", "several"),
    "stopped by": ("only one", "lowest", "higher"),
    # What ended it: a stop id of its own or of the model, a stop sequence, a limit; what became of its sequences.
    "ended by": ENDS,
    "sequence": ("nothing", "in one round", "across rounds", "before minimum", "from prompt"),
    "end": ("stop in run", "stop as bonus", "stop at prefill", "stop on budget", "budget", "max_len", "at prefill"),
    "pages": ("fresh", "after shorter", "after longer"),
    "state": ("fresh", "after shorter", "after longer"),
    "chunks": ("one", "full", "short tail", "tail of one"),
    "joined": ("alone", "beside decode"),
    "waited": ("no", "yes"),
    # Of a request that may be preempted: how often it was, in which round it ran again first, and how what it had
    # computed came back.
    "preempted": ("no", "once", "again"),
    "resumed in": ("1", "2", "later"),
    "refilled": ("at once", "in chunks", "from cache"),
    # Of a prefix cache: how much of a prompt it served, and what it did in the scenario at all.
    "prefix": ("nothing", "in part", "all"),
    "evicted": ("no", "yes"),
    "copied": ("no", "yes"),
    "shared": ("no", "yes"),
    "continued": ("no", "yes"),
    # Whose layers have windows, and whether pages went back behind all of them.
    "windows": ("none", "target's", "draft's", "both"),
    "freed": ("no", "yes"),
    # In what the target keeps its entries, and the draft.
    "entries": ("whole", "16 bits", "8 bits"),
    "draft entries": ("whole", "16 bits", "8 bits"),
    # Whether another engine runs its rounds, and whether it waited for that one.
    "handover": ("no", "at once", "after a wait"),
    # Of a model whose tokens have three positions.
    "images": ("none", "one", "several"),
    # Of ranks in lockstep: whether this one was idle in some step, padded to another's size, or always the largest; of
    # those that share every layer each does the same.
    "lockstep": ("alone", "idle", "padded", "largest", "in parts"),
}
"""Those of a scenario or of a whole request."""
ROUND_POINTS: dict[str, tuple[str, ...]] = {
    "accept": _ACCEPTS,
    "before": (_FIRST, *_ACCEPTS),
    "K": ("0", "1", "2", "3", "4", "5", "6 and 7", "8 and more"),
    "stage": ("first", "middle", "last", "only"),
    "rows": ("eager", "exact", "padded", "oversized"),
    "bucket": ("first", "same", "fewer rows", "more rows", "smaller", "larger"),
    "captured": ("none", "to 6", "to 15", "16 and more"),
    "batch": ("1", "2", "3", "4 and 5", "6 and more"),
    "mix": ("alone", "equal", "unequal", "zero among"),
    "switch": ("first", "same", "up", "down", "to none", "from none", "still none"),
    "page": ("every", "at", "after", "before", "inside"),
    "crossing": ("none", "one", "more"),
    "beside": ("nothing", "prefill"),
    # Whether its rows share a launch with chunks, and when its step ran, planned while the one before did.
    "launch": ("own", "packed"),
    "delay": ("no", "early", "late", "waited for"),
    "proposals": ("none", "forced", "own"),
    "limit": ("none", "budget", "max_len", "steps", "batch", "found", "tokens"),
    "cut": ("whole", "stop", "max_len"),
    "tie": ("no", "yes"),
    "checkpoint": ("off", "none yet", "kept", "one", "two and more"),
    # What stands in place of the first draft that is not right; rows behind a request's last draft.
    "wrong": WRONG,
    "surplus": ("none", "inside", "beyond max_len"),
    "block": ("none", "cut", "whole"),
    "match": ("nothing", "fewer", "full", "unused"),
    "attempt": ("first", "again"),
    # Of a tree: the accepted path, beams, whether all candidates were verified, and where accepted entries go.
    "path": ("nothing", "first branch", "first to its end", "other branch", "other to its end"),
    "topk": ("1", "2", "3 and 4", "5 and more"),
    "nodes": ("some", "all"),
    "moved": ("nothing", "in a page", "to another page"),
    # How tokens are chosen: "beside sampled" is a greedy row in a batch with sampled ones.
    "choice": ("greedy", "beside sampled", "sampled"),
    "drawn": ("no", "yes"),
    "filter": ("none", "top-k 1", "top-k", "top-p", "min-p", "several"),
    "temperature": ("below 1", "1", "above 1"),
    "penalty": ("same choice", "other choice", "other by draft"),
    "grammar": ("same choice", "other choice", "ends", "one token"),
    "logprobs": ("of the token", "with others"),
    "minimum": ("same choice", "other choice", "in window", "other by row"),
    # Whether the rows of a verify see the first entry of their request: all of them, some or none.
    "window": ("inside", "left", "beyond"),
}
"""Those of a decode round."""
POINTS = {**REQUEST_POINTS, **ROUND_POINTS}
"""point -> its bins."""

_CROSSED = """
    accept x rows x draft, accept x layers x draft, accept x before x layers, accept x rows x page,
    accept x crossing, accept x K, accept x bucket, accept x mix, accept x cut, accept x proposals,
    accept x checkpoint x layers, accept x chain, accept x block, accept x match, before x draft, K x page,
    K x draft, crossing x page size, draft x bucket, draft x switch, draft x beside, draft x limit, control x switch,
    draft x control, draft x variant, draft x end, draft x pages, draft x chunks, layers x variant, layers x switch,
    layers x rows, layers x end, layers x control, layers x state, state x start, rows x bucket, rows x batch,
    rows x switch, rows x variant, rows x cut, stage x limit, waited x pages, joined x chunks, draft x length,
    layers x length, accept x wrong, draft x surplus,
    path x rows, path x topk, path x proposals, path x choice, path x crossing, path x penalty, path x grammar,
    moved x page size, moved x rows, moved x choice, moved x layers, path x layers,
    topk x nodes, topk x rows, draft x topk,
    accept x choice x draft, choice x rows, accept x choice x proposals, accept x drawn, draft x drawn,
    accept x filter, accept x temperature, choice x control, choice x layers,
    accept x penalty, penalty x choice, accept x grammar, grammar x choice, accept x logprobs, logprobs x choice,
    draft x attempt, accept x attempt x layers, attempt x rows, attempt x choice, draft x preempted, layers x preempted,
    layers x resumed in, draft x refilled, draft x prefix, prefix x chunks, accept x prefix, prefix x preempted,
    draft x evicted, draft x copied, draft x shared, draft x continued,
    draft x ended by, layers x ended by, ended by x preempted, ended by x prefix, draft x sequence,
    accept x minimum, minimum x choice, minimum x rows, path x minimum, draft x minimum,
    draft x windows, layers x windows, windows x variant, accept x window, window x rows, window x crossing,
    draft x freed, freed x preempted,
    entries x draft entries, draft x draft entries, accept x entries, entries x windows, moved x entries,
    draft x handover, layers x handover, handover x chunks,
    accept x launch x layers, draft x launch, launch x mix, launch x choice, launch x entries,
    accept x delay, draft x delay, layers x delay, delay x rows, delay x choice, delay x switch,
    draft x images, layers x images, images x chunks, images x preempted, accept x images, images x windows
"""
CROSSES: dict[str, tuple[str, ...]] = {
    cross: tuple(cross.split(" x ")) for cross in (*POINTS, *" ".join(_CROSSED.split()).split(", "))
}
"""cross -> its points."""

OF_ENTRIES = ("takes", "handed", "embedding", "head", "vocabulary", "first embedding")
"""Those that only drafts have which are fed with the target's last hidden states."""
OF_TREES = ("path", "topk", "nodes", "moved")
"""Those of rounds whose drafts are a tree."""
_PROPOSED_BY: dict[str, Proposes] = {"chain": "chain", "block": "block", "match": "lookup"}


def drafts_with(point: str, value: str) -> tuple[Algorithm, ...]:
    """Return the drafts that can have this value of a point."""
    if point == "draft":
        return (cast(Algorithm, value),)
    if (point, value) == ("limit", "found"):
        return proposing("lookup")
    if point in OF_TREES:
        return tuple(kind.name for kind in KINDS if kind.trees)
    if (point, value) in (("windows", "draft's"), ("windows", "both")) or point == "draft entries":
        return tuple(kind.name for kind in KINDS if kind.extends)
    if point == "delay" and value != "no":
        return tuple(kind.name for kind in KINDS if kind.proposes != "lookup")
    if (point, value) == ("drawn", "yes"):
        return tuple(kind.name for kind in KINDS if kind.draws)
    if point in OF_ENTRIES:
        return tuple(kind.name for kind in KINDS if kind.hidden == "last")
    return proposing(_PROPOSED_BY[point]) if point in _PROPOSED_BY else ALGORITHMS


def name_of(cross: str, values: tuple[str, ...]) -> str:
    """Return the name of the bin of a cross in which its points, in their order, have these values."""
    pairs = zip(CROSSES[cross], values, strict=True)
    return f"{cross}: {', '.join(f'{point}={value}' for point, value in pairs)}"


def split(name: str) -> tuple[str, Mapping[str, str]]:
    """Return the cross of a bin, and the value of each of its points. Raises ValueError for what is no bin's name."""
    cross, _, rest = name.partition(": ")
    pairs = dict(part.partition("=")[::2] for part in rest.split(", "))
    known = cross in CROSSES and tuple(pairs) == CROSSES[cross]
    if not known or any(value not in POINTS[point] for point, value in pairs.items()):
        raise ValueError(f"invalid bin {name!r}: expected <cross>: <point>=<value>, .. with crosses as in CROSSES")
    return cross, pairs
