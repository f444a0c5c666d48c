"""The tables of features in the documentation, made from their rows (tables.py writes them)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, refusal, refused_beside
from draftproof.properties.features.feature import Feature
from draftproof.properties.values.drafts import DRAFT_KINDS
from draftproof.report.definitions import linked
from draftproof.report.markdown import anchor, table

OF_PROBES = "it is defined for probes"


def features() -> str:
    """Return every feature with what a scenario of it has."""
    return table(("feature", "what a scenario has"), ((f"`{one.name}`", one.what) for one in FEATURES))


def overview() -> str:
    """Return every feature with all that it is not defined beside, as links to the reasons."""
    return table(("feature", "never beside"), map(_summary, FEATURES))


def beside() -> str:
    """Return a section for each feature: what it is not defined beside, and why; a pair stands in both of its two."""
    return "\n\n".join(map(_section, FEATURES))


def _summary(feature: Feature) -> tuple[str, str]:
    others = [f"[`{other}`](#{anchor(feature.name)})" for other in _others(feature)]
    return f"[`{feature.name}`](#{anchor(feature.name)})", ", ".join([*others, *_lacking(feature)]) or "-"


def _section(feature: Feature) -> str:
    title = f"### {feature.name}\n\n"
    about = f"{feature.what[0].upper()}{feature.what[1:]} ({linked(feature.rule)})."
    rows = [*((f"`{other}`", linked(refusal(feature.name, other))) for other in _others(feature)), *_of_drafts(feature)]
    if not rows:
        about += " It is defined beside every other feature, with every draft and with checkpoints."
        return title + textwrap.fill(about, 120, break_on_hyphens=False)
    return f"{title}{about}\n\n{table(('never beside', 'because'), rows)}"


def _others(feature: Feature) -> tuple[str, ...]:
    refused = refused_beside(feature.name)
    return tuple(name for name in FEATURES_BY_NAME if name in refused)


def _lacking(feature: Feature) -> Iterator[str]:
    """Yield the drafts that cannot have a feature, as one entry, and checkpoints if it is not defined for them."""
    if others := ", ".join(f"`{kind.name}`" for kind in DRAFT_KINDS if not feature.drafts(kind)):
        yield f"a draft {others}"
    if feature.of_probes:
        yield "a checkpoint"


def _of_drafts(feature: Feature) -> Iterator[tuple[str, str]]:
    for what in _lacking(feature):
        yield what, OF_PROBES if what == "a checkpoint" else feature.because
