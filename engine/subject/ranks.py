"""A rank's place in its world, and the group that its engine joins there."""

from __future__ import annotations

from pathlib import Path

import torch

from draftproof.engine.ranks import DataParallelGroup
from draftproof.properties.formats.rank_journal import RankJournal
from draftproof.properties.values.subject import RankPlace


def group_of(place: RankPlace, device: torch.device) -> DataParallelGroup:
    """Join the others; waits for all of them. Of CUDA devices each rank has the one of its number."""
    own = torch.device("cuda", place.rank) if device.type == "cuda" else device
    if own.type == "cuda":
        torch.cuda.set_device(own)
    return DataParallelGroup(
        place.rank, place.size, Path(place.meeting), RankJournal(Path(place.meeting) / "journal", place.size), own
    )
