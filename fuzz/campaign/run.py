"""A whole campaign: its directory, its workers and its loop, as `draftproof fuzz` runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from draftproof.faults.catalogue import FaultFile, read_sources
from draftproof.fuzz.campaign.batches import Planner
from draftproof.fuzz.campaign.drive import Campaign, CampaignEnd
from draftproof.fuzz.campaign.fitted import FittedPlanner, offered
from draftproof.fuzz.campaign.plan import CampaignPlan
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.settings import CampaignLimits, RequestedSettings, Settings
from draftproof.fuzz.campaign.standing import CampaignStatus
from draftproof.harness.checkpoint_scenarios import KvDtypes
from draftproof.harness.workers.messages import SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.harness.workers.process import visible_gpus
from draftproof.properties.coverage.bins import universe
from draftproof.properties.coverage.covered import not_covered
from draftproof.properties.lib.devices import present
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import drafts_of
from draftproof.properties.values.limits import NO_LIMITS, Limits

if TYPE_CHECKING:
    from draftproof.harness.cluster.scenarios import OrderPool

ON_GPU = 12
"""The most workers that share a GPU: what they do on the host takes a core each, and the GPU waits for it."""


def run_campaign(
    path: Path,
    asked: RequestedSettings,
    limits: CampaignLimits,
    *,
    fault: FaultFile | None = None,
    workers: int | None = None,
    cluster: str = "",
    memory: int | None = None,
    search: str = "",
    subject_limits: Limits = NO_LIMITS,
    versions: str = "",
    watch: Callable[[CampaignStatus], None] = lambda _status: None,
) -> tuple[Settings, CampaignEnd]:
    """Run a campaign in the directory `path`, or resume it, within limits; return its settings and how it ended.

    A new campaign with a fault gets the draft of the fault unless another was asked for, one with a checkpoint all that
    this offers. `workers`: processes (`default_workers`), `cluster`: the address of the Ray cluster that they run
    in (""; on this machine), `memory`: most bytes of one; `search`: PYTHONPATH of a subject in another Python;
    `subject_limits`: what the subject can run; `versions`: its name and those of its packages, for reports; `watch` is
    called with the state of the campaign.

    Raises CampaignError, DeviceError, ClusterError, and StalePatchError or PatchError for a fault that does not fit
    the sources.
    """
    with RunDir(path) as directory:
        if asked.drafts is None and fault is not None and directory.settings is None:
            asked = asked._replace(drafts=drafts_of(fault.fault.draft))
        if asked.drafts is None and asked.model and directory.settings is None:
            dtypes = KvDtypes(asked.kv_cache_dtype or "auto", asked.draft_kv_cache_dtype or "auto")
            asked = asked._replace(drafts=offered(asked.model, asked.draft_model or "", subject_limits, dtypes))
        settings = directory.begin(asked, read_sources(), fault)
        device = settings.device if settings.subject.python or cluster else present(settings.device)
        folder = str(directory.subject.resolve()) if settings.hunks else ""
        spec = SubjectSpec(device=device, folder=folder, hunks=settings.hunks, subject=settings.subject, search=search)
        planner: Planner = CampaignPlan(settings.seed, settings.drafts)
        if settings.model or subject_limits != NO_LIMITS:
            planner = FittedPlanner(planner, settings, subject_limits)
        possible = universe(settings.drafts, not_covered(subject_limits, frozenset(CHANNELS)))
        with _pool(cluster, spec, workers, directory.workers, memory) as pool:
            campaign = Campaign(
                *(directory, settings, limits, pool, planner),
                possible=possible,
                width=pool.width,
                versions=versions,
                subject_limits=subject_limits,
                watch=watch,
            )
            if cluster:
                cast("OrderPool", pool).tell(campaign.note)
            return settings, campaign.go()


def _pool(cluster: str, spec: SubjectSpec, workers: int | None, folder: Path, memory: int | None) -> Pool | OrderPool:
    if cluster:
        from draftproof.harness.cluster.scenarios import OrderPool

        return OrderPool(cluster, spec, workers, folder, memory=memory)
    return Pool(spec, workers or default_workers(spec.device), folder, memory=memory)


def default_workers(device: str) -> int:
    """Return how many workers a campaign has on this machine: one a core, and of those on GPUs ON_GPU each at most."""
    cores = len(os.sched_getaffinity(0))
    return min(cores, ON_GPU * max(1, len(visible_gpus()))) if device == "cuda" else cores
