"""Draft algorithms by name: each module says which class is its `Draft`."""

from __future__ import annotations

from draftproof.engine.drafts.base import Draft
from draftproof.engine.drafts.dflash import DFlash
from draftproof.engine.drafts.eagle import Eagle
from draftproof.engine.drafts.mtp import Mtp
from draftproof.engine.drafts.ngram import Ngram
from draftproof.engine.drafts.standalone import Standalone

ALGORITHMS: dict[str, type[Draft]] = {
    "eagle": Eagle,
    "mtp": Mtp,
    "dflash": DFlash,
    "ngram": Ngram,
    "standalone": Standalone,
}
