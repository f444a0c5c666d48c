"""Scenarios of a campaign made runnable: on a checkpoint where it has one, and fitted to what its subject can run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from draftproof.fuzz.campaign.batches import Planner
from draftproof.fuzz.campaign.settings import CampaignError, Settings
from draftproof.harness.chat_turns import with_turns
from draftproof.harness.checkpoint_scenarios import AUTO, KvDtypes, RealTarget, every_draft, one_draft
from draftproof.properties.fit import fit_generated
from draftproof.properties.values.drafts import Algorithm, read_from
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario

_FROM_FOLDER = read_from("directory", "directory or seed")


class FittedPlanner:
    """Plans what another planner does, for the checkpoint of the settings and within limits.

    Raises CampaignError for directories that do not go together, `block` UnfitError for a subject that takes none of
    what is planned.
    """

    def __init__(self, planner: Planner, settings: Settings, limits: Limits) -> None:
        self._planner, self._limits, self._target = planner, limits, _target(settings)

    def block(self, number: int) -> Sequence[tuple[Scenario, str]]:
        """Return the same block, each scenario exchanged and fitted."""
        planned = self._planner.block(number)
        turns = range(number * len(planned), (number + 1) * len(planned))
        return [(self._runnable(one, turn), why) for turn, (one, why) in zip(turns, planned, strict=True)]

    def _runnable(self, scenario: Scenario, turn: int) -> Scenario:
        made = self._target.exchanged(scenario, turn) if self._target else scenario
        return with_turns(fit_generated(made, self._limits), self._limits)


def offered(model: str, folder: str, limits: Limits, kv_dtypes: KvDtypes = AUTO) -> tuple[Algorithm, ...]:
    """Return the drafts that directories offer and a subject has. Raises CampaignError."""
    try:
        offer = every_draft(Path(model), Path(folder) if folder else None, 0, kv_dtypes)
    except (ValueError, OSError) as error:
        raise CampaignError(f"--model {model}: {error}") from None
    return tuple(one.name for one in offer.drafts if one.name in limits.drafts)


def _target(settings: Settings) -> RealTarget | None:
    if not settings.model:
        return None
    path, folder = Path(settings.model), Path(settings.draft_model) if settings.draft_model else None
    dtypes = KvDtypes(settings.kv_cache_dtype, settings.draft_kv_cache_dtype)
    try:
        drafts = [
            one_draft(
                path,
                name,
                folder if name in _FROM_FOLDER else None,
                settings.seed,
                built_in=settings.mtp,
                kv_dtypes=dtypes,
            )
            for name in settings.drafts
        ]
        return RealTarget(path, drafts, settings.kv_cache_dtype)
    except (ValueError, OSError) as error:
        raise CampaignError(f"--model {path}: {error}") from None
