"""The one configuration that target and draft are built from: nobody changes it, and layers run as it says."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import Contract, equals
from draftproof.properties.diagnosis.compare import first_divergence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.scenario import Checkpoint
from draftproof.properties.values.trace import Datum, Key, integers
from draftproof.properties.values.verdict import Divergence

# As handed in, after the target was built, after the draft was built, at the end.
_LOOKS = 4


def layer_types(evidence: Evidence) -> tuple[int, ...]:
    """0 full attention, 1 linear, of every layer; of a real model as the reference says."""
    model = evidence.scenario.model
    if not isinstance(model, Checkpoint):
        return tuple(int(kind == "linear_attention") for kind in model.types)
    routed = evidence.reference.channel("config.routing")
    return tuple(kind for _, kind in sorted(routed.items()) if isinstance(kind, int))


def _seen(evidence: Evidence) -> Iterator[Divergence]:
    """Every look shows what was handed in, with the layers of the scenario's model."""
    got = evidence.subject.channel("config.seen")
    types = layer_types(evidence)
    handed = integers(got.get(Key(-1, 0, step=0)))[:1]
    expected: dict[Key, Datum] = {Key(-1, 0, step=look): (*handed, len(types), *types) for look in range(_LOOKS)}
    found = first_divergence("config.seen", "config.seen", expected, got)
    if found:
        yield found


CONTRACTS = (
    Contract(
        name="config.seen",
        needs=frozenset({"config.seen"}),
        minimum={"scenarios": 1, "hybrid_scenarios": 1},
        check=_seen,
    ),
    equals("config.routing", "config.routing", hybrid_scenarios=1),
)
