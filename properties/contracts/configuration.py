"""The configuration that target and draft are both built from: it never changes, and layers run as it says."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict

from draftproof.properties.contracts.base import Differences, contract, equals, listed
from draftproof.properties.diagnosis.compare import Mismatch, first_divergence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import ConfigSeen, IndexBytes, LayerKind
from draftproof.properties.values.relations import Missing, OutOfRange, Surplus
from draftproof.properties.values.scenario import Checkpoint
from draftproof.properties.values.trace import Key

_INDEX_BYTES = (4, 8)
# As handed in, after the target was built, after the draft was built, at the end.
_LOOKS = 4


def layer_kinds(evidence: Evidence) -> tuple[LayerKind, ...]:
    """Return the kind of every layer; of a real model as the reference says."""
    model = evidence.scenario.model
    if not isinstance(model, Checkpoint):
        return tuple(LayerKind[kind.upper()] for kind in model.types)
    return tuple(kind for _, kind in sorted(evidence.reference.typed("config.routing", LayerKind).items()))


def _seen(evidence: Evidence) -> Differences:
    """Check that every look shows what was handed in, with the layers of the scenario's model."""
    got = evidence.subject.typed("config.seen", ConfigSeen)
    kinds, handed = layer_kinds(evidence), got.get(Key(-1, 0, step=0))
    right = ConfigSeen(handed.crc if handed else 0, len(kinds), kinds)
    expected = {Key(-1, 0, step=look): right for look in range(_LOOKS)}
    yield first_divergence("config.seen", "config.seen", expected, got)


def _capacity(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that indices have 4 bytes or 8 wherever they are kept; of a kind that is kept nowhere nothing is said."""
    channel, at = "config.index_bytes", Key(-1, 0)
    reported = evidence.subject.typed(channel, IndexBytes)
    if at not in reported:
        yield Mismatch(channel, at, "bytes of an index", None, Missing())
    for key, value in reported.items():
        if key != at:
            yield Mismatch(channel, key, None, value, Surplus())
        for name, size in asdict(value).items():
            if size not in (0, *_INDEX_BYTES):
                yield Mismatch(channel, key, f"4 or 8 bytes for {name}", f"{size} for {name}", OutOfRange())


CONTRACTS = (
    listed("config.capacity", _capacity, ("config.index_bytes",), cites="S-BATCH-7", minimum="scenarios"),
    contract("config.seen", _seen, ("config.seen",), cites="S-BATCH-4", minimum="scenarios hybrid_scenarios"),
    equals("config.routing", "config.routing", cites="S-BATCH-4", minimum="hybrid_scenarios"),
)
