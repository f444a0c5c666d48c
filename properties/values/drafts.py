"""Drafts: what each algorithm is made of, and what a subject that runs it reports.

A new draft is a specification and a row of `DRAFT_KINDS`; everything that generates, runs, measures or judges drafts
reads that row. The engine finds the algorithm in engine/drafts/, the reference in reference/drafts/, both under its
name. Sources: EAGLE, Li et al. (2024); EAGLE-3, Li et al. (2025); chained MTP, sgl-project/sglang#22041 and DeepSeek-V3
(2024); DFlash, sgl-project/sglang#25029; n-gram, Saxena, "Prompt Lookup Decoding" (2023); standalone, Leviathan et al.
(2023).
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from draftproof.properties.lib.base import Value
from draftproof.properties.values.channel import Channel
from draftproof.properties.values.observed import NgramMatch

Small = Annotated[int, Meta(ge=1, le=64)]
Lanes = Annotated[int, Meta(ge=2, le=64)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]
Layers = Annotated[int, Meta(ge=1, le=16)]
Window = Annotated[int, Meta(ge=0, le=1024)]
KvBits = Literal[64, 16, 8]
KvCacheDtype = Literal["auto", "fp8_e4m3"]
"""How a real model's entries are kept: in its own dtype, or in FP8 with a scale for each layer (S-KV-4)."""
KV_CACHE_DTYPES: tuple[KvCacheDtype, ...] = KvCacheDtype.__args__  # type: ignore[attr-defined]
Features = Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)]
Algorithm = Literal["eagle", "mtp", "dflash", "ngram", "standalone", "eagle3"]
ALGORITHMS: tuple[Algorithm, ...] = Algorithm.__args__  # type: ignore[attr-defined]
Proposes = Literal["steps", "block", "chain", "lookup"]
Match = Literal["earliest", "latest"]
StateOf = Literal["after_norm", "before_norm"]
CheckpointSource = Literal["directory", "directory or seed", "target", "not needed", "unsupported"]


class _Sized(Value, frozen=True, kw_only=True):
    """The seed of a probe's draft, the sizes of its layers, and the positions that their rows see (0: all).

    Entries are numbers of 64 bits, or codes of `kv_bits` with a scale for each head.
    """

    seed: Seed
    heads: Small
    kv_heads: Small
    key_dim: Small
    value_dim: Small
    lanes: Lanes
    window: Window = 0
    kv_bits: KvBits = 64


class _OfEntries(_Sized, frozen=True, kw_only=True):
    """What a draft of entries (token, hidden) is fed with, and what it has of its own (S-HEAD-6).

    It `takes` the target's last state after or before its final norm; `handed` says which of the two a layer passes on
    to the next step. It can propose `head_vocab` of the target's ids (0: all of them). With `masks_first` the embedding
    of the entry at position 0 is zero.
    """

    takes: StateOf = "after_norm"
    handed: StateOf = "after_norm"
    own_embedding: bool = False
    own_head: bool = False
    head_vocab: Annotated[int, Meta(ge=0)] = 0
    masks_first: bool = False


class Eagle(_OfEntries, frozen=True, kw_only=True, tag="eagle", tag_field="kind"):
    """An EAGLE head of a probe: one layer of its own sizes, fed with (token, hidden)."""

    def shapes(self, lanes: int) -> dict[str, tuple[int, ...]]:
        """Return the weights outside of its layers: fc over (embedding, hidden), out."""
        return {"head.fc": (self.lanes, 2 * lanes), "head.out": (lanes, self.lanes)}


class _Layered(_Sized, frozen=True, kw_only=True):
    """A draft that has layers as a probe has them."""

    layers: Layers


class Mtp(_OfEntries, frozen=True, kw_only=True, tag="mtp", tag_field="kind"):
    """Chained multi-token prediction for a probe: `layers` with weights and entries of their own, one a proposal.

    With `chain` a layer takes the output of the one before it, as that `handed` it on; without it every layer takes the
    target's hidden states. Layers share an embedding of their own; each has its own head.
    """

    layers: Layers
    chain: bool = True

    def shapes(self, lanes: int) -> dict[str, tuple[int, ...]]:
        """Return the weights outside of its layers: for each layer j fc.j over (embedding, hidden), and out.j."""
        fc: dict[str, tuple[int, ...]] = {f"mtp.fc.{layer}": (self.lanes, 2 * lanes) for layer in range(self.layers)}
        return fc | {f"mtp.out.{layer}": (lanes, self.lanes) for layer in range(self.layers)}


class Eagle3(_Sized, frozen=True, kw_only=True, tag="eagle3", tag_field="kind"):
    """An EAGLE-3 head of a probe: one layer of its own width, over (token, features) and then over its own states.

    Features are the outputs of the target's layers `features`, side by side in that order. It proposes `head_vocab` of
    the target's tokens (0: all of them), and embeds tokens itself if `own_embedding`.
    """

    features: Features
    head_vocab: Annotated[int, Meta(ge=0)] = 0
    own_embedding: bool = False

    def shapes(self, lanes: int) -> dict[str, tuple[int, ...]]:
        """Return the weights outside of its layer, embedding and head: fc over the features."""
        return {"eagle3.fc": (self.lanes, lanes * len(self.features))}


class DFlash(_Layered, frozen=True, kw_only=True, tag="dflash", tag_field="kind"):
    """A block of masked tokens, proposed in one pass over features of the context.

    These are the outputs of the target's layers `features`, side by side in that order.
    """

    features: Features

    def shapes(self, lanes: int) -> dict[str, tuple[int, ...]]:
        """Return the weights outside of its layers: in, mask (the embedding of a masked token), out."""
        return {"dflash.in": (self.lanes, lanes), "dflash.mask": (lanes,), "dflash.out": (lanes, self.lanes)}


class Standalone(_Layered, frozen=True, kw_only=True, tag="standalone", tag_field="kind"):
    """A smaller probe with entries of its own, which never sees a hidden state of the target."""


class Ngram(Value, frozen=True, kw_only=True, tag="ngram", tag_field="kind"):
    """What followed the longest suffix of `max_n` down to `min_n` tokens that has occurred before.

    `match`: of several earlier occurrences the earliest counts, as in transformers and vLLM, or the latest.
    """

    max_n: Annotated[int, Meta(ge=1, le=16)]
    min_n: Annotated[int, Meta(ge=1, le=16)] = 1
    match: Match = "earliest"


class CheckpointDraft(Value, frozen=True, kw_only=True, tag="checkpoint", tag_field="kind"):
    """A draft of a real architecture: a directory, or "" for an EAGLE head made from `seed`.

    `built_in`: the MTP layers that the target's own checkpoint brings; as "eagle" the first of them, run again and
    again, as "mtp" all of them, chained or, without `chain`, each on the target's hidden states. Its entries are
    kept as `kv_cache_dtype` says, whatever the target's are.
    """

    algorithm: Literal["eagle", "mtp", "dflash", "standalone", "eagle3"] = "eagle"
    path: str = ""
    seed: Seed = 0
    built_in: bool = False
    chain: bool = True
    kv_cache_dtype: KvCacheDtype = "auto"


ProbeDraft = Eagle | Mtp | DFlash | Standalone | Eagle3
Draft = Eagle | Mtp | DFlash | Standalone | Eagle3 | Ngram | CheckpointDraft

_ENTRIES = frozenset({"extend.positions", "extend.slots", "extend.kv", "extend.discarded"})
_STEPS = frozenset({f"draft.step.{name}" for name in ("ids", "positions", "slots", "proposal")}) | {"draft.discarded"}
_HEAD = frozenset({"draft.step.hidden_in", "extend.ids", "extend.hidden_in", "extend.proposal"})
_BLOCK = frozenset({f"draft.block.{name}" for name in ("ids", "positions", "slots", "visible", "proposal")})
_BLOCK |= {"draft.discarded"}
_BEAMS = frozenset({f"draft.beam.{name}" for name in ("ids", "positions", "slots", "hidden_in", "candidates")})
_PARENTS = frozenset({"propose.parents", "round.parents", "verify.parents"})
TREE_CHANNELS = _BEAMS | _PARENTS
"""Channels of a draft that proposes a tree."""


class DraftKind(NamedTuple):
    """An algorithm, as far as code outside of its implementation has to know it.

    `hidden` says which hidden states of the target it reads: none, the last ones, or the outputs of chosen layers.
    `proposes`: "steps" in forwards of its own, "block" in one pass over masked tokens, "chain" a token each time that a
    layer extends, "lookup" what it finds, which may be fewer. `tapped` are the channels that not every draft reports,
    `channels` the channels that no other draft has. `extends`: it keeps entries of committed tokens.
    `proposes_at_extend`: the extend gives the first proposal of the next round. `layer_a_draft`: it needs as many
    layers as a round has drafts. `checkpoint` is where the draft of a real model is read: in a directory of its own,
    there or else made from a seed, or in the target's directory; a draft without weights needs none. `trees`: its
    drafts may be a tree. `draws`: it may draw its tokens (S-SAMPLE-9). `minimum` are the counts (coverage/facts.py) of
    its own scenarios without which a check of it proves nothing, beside the counts that every draft needs.
    """

    name: Algorithm
    hidden: Literal["none", "last", "layers"]
    proposes: Proposes
    tapped: frozenset[str]
    minimum: tuple[str, ...] = ()
    channels: tuple[Channel, ...] = ()
    extends: bool = True
    proposes_at_extend: bool = False
    layer_a_draft: bool = False
    checkpoint: CheckpointSource = "unsupported"
    trees: bool = False
    draws: bool = False


DRAFT_KINDS: tuple[DraftKind, ...] = (
    DraftKind(
        "eagle",
        "last",
        "steps",
        _STEPS | _ENTRIES | _HEAD,
        ("second_draft_steps", "all_accepted_then_draft", "zero_tails"),
        proposes_at_extend=True,
        checkpoint="directory or seed",
        trees=True,
        draws=True,
    ),
    DraftKind(
        "mtp",
        "last",
        "chain",
        _ENTRIES | {"extend.ids", "extend.hidden_in", "extend.proposal"},
        ("layers_chained", "layers_unchained", "guesses_replaced", "chains_of_one", "zero_tails"),
        proposes_at_extend=True,
        layer_a_draft=True,
        checkpoint="target",
    ),
    DraftKind(
        "dflash",
        "layers",
        "block",
        _BLOCK | _ENTRIES | {"extend.hidden_in"},
        ("blocks", "blocks_cut", "all_accepted_then_draft"),
        checkpoint="directory",
        draws=True,
    ),
    DraftKind(
        "ngram",
        "none",
        "lookup",
        frozenset({"propose.match"}),
        ("matches", "no_matches", "matches_after_partial", "matches_of_fewer", "unfound_beside_found"),
        (
            Channel(
                "propose.match",
                "propose",
                1,
                (),
                NgramMatch,
                "tokens",
                what="the n-gram match: (tokens, place of the token that follows it)",
                at="every decode round",
                holds="`NgramMatch`",
            ),
        ),
        extends=False,
        checkpoint="not needed",
        trees=True,
    ),
    DraftKind(
        "standalone",
        "none",
        "steps",
        _STEPS | _ENTRIES | {"extend.ids"},
        ("second_draft_steps", "all_accepted_then_draft"),
        checkpoint="directory",
        draws=True,
    ),
    DraftKind(
        "eagle3",
        "layers",
        "steps",
        _STEPS | _ENTRIES | _HEAD,
        ("second_draft_steps", "all_accepted_then_draft", "zero_tails", "out_of_vocabulary"),
        proposes_at_extend=True,
        checkpoint="directory",
        draws=True,
    ),
)
DRAFT_CHANNELS = frozenset(TREE_CHANNELS).union(*(kind.tapped for kind in DRAFT_KINDS))
"""Channels that some drafts report and others do not."""
DRAFT_KINDS_BY_NAME: dict[str, DraftKind] = {kind.name: kind for kind in DRAFT_KINDS}
SPECS: dict[str, type[Draft]] = {spec.__struct_config__.tag: spec for spec in Draft.__args__}
"""The specification of each draft, by its tag."""

DraftSet = Algorithm | Literal["all"]
DRAFT_SETS: tuple[DraftSet, ...] = (*ALGORITHMS, "all")
CHECK_EXAMPLES = 28 * len(ALGORITHMS)
"""Scenarios of a check of all drafts: in as many all pairs meet; of fewer some contract soon says INCONCLUSIVE."""


def drafts_of(name: DraftSet) -> tuple[Algorithm, ...]:
    """Return the drafts that a name stands for: itself, or all."""
    return ALGORITHMS if name == "all" else (name,)


def algorithm(draft: Draft) -> Algorithm:
    """Return the name of a draft's algorithm."""
    if isinstance(draft, CheckpointDraft):
        return draft.algorithm
    return draft.__struct_config__.tag  # type: ignore[return-value]


def kind_of(draft: Draft) -> DraftKind:
    """Return the row of `DRAFT_KINDS` that a draft belongs to."""
    return DRAFT_KINDS_BY_NAME[algorithm(draft)]


def tapped(draft: Draft, is_tree: bool) -> frozenset[str]:
    """Return the channels that not every draft reports, of those that a draft does; of a tree there are others."""
    kind = kind_of(draft)
    if not is_tree:
        return kind.tapped
    of_tree = TREE_CHANNELS if kind.proposes == "steps" else _PARENTS
    return frozenset(name for name in kind.tapped if not name.startswith("draft.step.")) | of_tree


def is_free(draft: Draft) -> bool:
    """Return whether a draft takes nothing of the target, so that it can propose before the prompt has run."""
    return kind_of(draft).hidden == "none"


def read_from(*sources: CheckpointSource) -> tuple[Algorithm, ...]:
    """Return the algorithms whose drafts of real models are read from one of these sources."""
    return tuple(kind.name for kind in DRAFT_KINDS if kind.checkpoint in sources)


def proposing(how: Proposes) -> tuple[Algorithm, ...]:
    """Return the algorithms that propose in this way."""
    return tuple(kind.name for kind in DRAFT_KINDS if kind.proposes == how)
