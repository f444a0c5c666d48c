"""A run and its variant agree bit for bit: one contract a variant, over every channel that it leaves alone.

A real model's floats depend on the shape of a batch, so of variants that change shapes only its integers are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from draftproof.properties.contracts.base import Contract
from draftproof.properties.diagnosis.compare import first_divergence
from draftproof.properties.evidence.evidence import CAPTURE, Evidence
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.scenario import VARIANTS, Variant
from draftproof.properties.values.trace import Datum, Key, Trace, integers
from draftproof.properties.values.verdict import Divergence
from draftproof.properties.variants import NEED_SIZES, unchanged

Values = Mapping[Key, Datum]
_RESHAPED = frozenset({"padded_vs_exact", "other_bucket", "rows_permuted", "other_commit"})


def _check(variant: Variant, evidence: Evidence) -> Iterator[Divergence]:
    if evidence.varied is None:
        return
    for channel in sorted(unchanged(variant), key=lambda name: CHANNELS[name].order):
        if channel not in evidence.subject.channels & evidence.varied.channels:
            continue
        if not evidence.exact and variant in _RESHAPED and _rounded(channel, evidence):
            continue
        expected = _comparable(variant, channel, evidence.varied, evidence)
        got = _comparable(variant, channel, evidence.subject, evidence)
        found = first_divergence(f"variant.{variant}", channel, expected, got)
        if found:
            yield found


def _rounded(channel: str, evidence: Evidence) -> bool:
    """Whether a channel shows the last bits of floats: those themselves, or which entries came out as they were."""
    if channel == "commit.written":
        return evidence.form.repeats
    return CHANNELS[channel].kind in ("vector", "choice")


def _comparable(variant: Variant, channel: str, trace: Trace, evidence: Evidence) -> Values:
    """A channel without what the variant changes: captured sizes, places in the batch, what capture wrote."""
    values = trace.channel(channel)
    if channel == "round.rows" and variant in NEED_SIZES:
        return {key: _without(value, 3) for key, value in values.items()}
    if channel == "round.rows" and variant == "rows_permuted":
        return {key: _without(value, 0) for key, value in values.items()}
    if channel == "commit.written":
        return _written(values, trace.channel("graph.replay"), evidence.page_size)
    return values


def _without(value: Datum, at: int) -> Datum:
    flat = integers(value)
    return (*flat[:at], *flat[at + 1 :]) if isinstance(value, tuple) else value


def _written(values: Values, launches: Values, page_size: int) -> Values:
    """What launches wrote outside the reserved page, numbered without captures.

    Slot 0 holds whatever padding left there last, so whether a launch changes it depends on the launches before.
    """
    numbers: dict[int, int] = {}
    kept: dict[Key, Datum] = {}
    for key in sorted(values):
        launch = launches.get(key)
        if not isinstance(values[key], tuple) or (isinstance(launch, tuple) and launch[0] == CAPTURE):
            continue
        flat = integers(values[key])
        number = numbers.get(key.round, 0)
        numbers[key.round] = number + 1
        pairs = zip(flat[::2], flat[1::2], strict=False)
        live = [pair for pair in pairs if pair[0] > 1 or pair[1] >= page_size]
        kept[key._replace(step=number)] = tuple(part for pair in live for part in pair)
    return kept


def _drawn(variant: Variant, evidence: Evidence) -> bool:
    return evidence.scenario.variant == variant and evidence.varied is not None


# Without taps, a draft is seen only through proposals that are verified.
_MORE: Mapping[Variant, Mapping[str, int]] = {"taps_off": {"taps_off_long_proposals": 1}}

CONTRACTS = tuple(
    Contract(
        name=f"variant.{variant}",
        needs=unchanged(variant),
        minimum={f"variant_{variant}": 1, "decode_rounds": 1, **_MORE.get(variant, {})},
        check=partial(_check, variant),
        concerns=partial(_drawn, variant),
        whole=False,
    )
    for variant in VARIANTS
)
