"""Scenarios that have the features which a check was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import drafts, inputs, screen
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.features.feature import Feature
from draftproof.properties.lib.names import did_you_mean
from draftproof.report.numbers import plural

if TYPE_CHECKING:
    from draftproof.properties.values.limits import Limits
    from draftproof.properties.values.scenario import Scenario

FEATURE_EXAMPLES = 60
"""Scenarios of features: each is one of many that are drawn."""
_MOST = 1 << 20

With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help=f"Only scenarios that have this feature (may be repeated: all of them): {', '.join(FEATURES_BY_NAME)}.",
        metavar="FEATURE",
    ),
]


def features(names: Sequence[str] | None) -> tuple[Feature, ...]:
    """Return the features by their names, each once. Raises InputError with all names."""
    for name in names or ():
        if name not in FEATURES_BY_NAME:
            raise inputs.InputError(
                f"invalid --with {name!r}: expected one of {', '.join(FEATURES_BY_NAME)}"
                f"{did_you_mean(name, FEATURES_BY_NAME)}"
            )
    return tuple(FEATURES_BY_NAME[name] for name in dict.fromkeys(names or ()))


def scenarios(
    wanted: Sequence[Feature], options: drafts.Chosen, limits: Limits, seed: int, count: int
) -> list[Scenario]:
    """Return the first scenarios of a list that have all of the features. Raises InputError."""
    from draftproof.properties.select import NoScenarioError, select

    told = " ".join(f"--with {feature.name}" for feature in wanted)
    listed = drafts.generated(options, seed, _MOST, [feature.name for feature in wanted])
    try:
        with screen.progress(f"looking for scenarios {told}", count) as advance:
            found = select(listed, wanted, count, limits, advance)
    except NoScenarioError as error:
        raise inputs.InputError(f"invalid {told} with --draft {options.name}: {error}") from None
    if len(found.scenarios) < count:
        names = " and ".join(feature.name for feature in wanted)
        among = plural(found.looked_at, "scenario")
        screen.line(f"only {len(found.scenarios)} with {names} among the first {among} of the list")
    return list(found.scenarios)
