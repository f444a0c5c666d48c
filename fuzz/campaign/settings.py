"""What a campaign is, and for how long it runs this time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from draftproof.properties.formats.case import decode
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.strategies.version import STRATEGIES_VERSION
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, KvCacheDtype
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice

Until = Literal["closure", "stall"]
UNTIL: tuple[Until, ...] = ("closure", "stall")
OTHER_VERSION = "resume the campaign with the Draftproof that began it, or begin a new one in another directory"
_BYTES = {"M": 1 << 20, "G": 1 << 30}
# Below this an interpreter with torch in it cannot live.
LEAST_MEMORY = 512 << 20


class CampaignError(DraftproofError, ValueError):
    """A campaign cannot run as asked, or not in this directory; the message says what was expected."""


class DiskError(CampaignError):
    """A file of a campaign cannot be written; all that was kept before is whole."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} cannot be written: {reason}; make room and run the same command again")


class Settings(Value, frozen=True, kw_only=True):
    """What stays the same for the life of a campaign; kept in campaign.json.

    `fault` is the id of the fault that was put into the copy of the sources in RUN/subject ("": none was), `patch` a
    checksum of its diff if it came from a file, and `hunks` are its counters. `subject`: a subject other than the
    engine. `model` is the directory of a checkpoint in place of probes, `draft_model` its draft's; with `mtp` its first
    MTP layer is the head; they keep their KV entries as `kv_cache_dtype` and `draft_kv_cache_dtype` say. `strategies`
    is the version of the scenario generator.
    """

    seed: int = 0
    drafts: tuple[Algorithm, ...] = ALGORITHMS
    device: Literal["cpu", "cuda"] = "cpu"
    fault: str = ""
    patch: str = ""
    hunks: tuple[str, ...] = ()
    subject: SubjectChoice = BUILT_IN_SUBJECT
    model: str = ""
    draft_model: str = ""
    mtp: bool = False
    kv_cache_dtype: KvCacheDtype = "auto"
    draft_kv_cache_dtype: KvCacheDtype = "auto"
    strategies: int = STRATEGIES_VERSION


class CampaignLimits(NamedTuple):
    """How long a campaign goes on this time.

    `time`: seconds from now; `examples`: scenarios in all, over every call; `until`: "closure" ends it when no bin that
    can be covered is missing, "stall" when nothing new came for long.
    """

    time: float
    until: Until | None = None
    examples: int | None = None


class RequestedSettings(NamedTuple):
    """Settings as a user gave them; None where nothing was said, so that a campaign's own hold."""

    seed: int | None = None
    drafts: tuple[Algorithm, ...] | None = None
    device: Literal["cpu", "cuda"] | None = None
    fault: str | None = None
    patch: str | None = None
    subject: SubjectChoice | None = None
    model: str | None = None
    draft_model: str | None = None
    mtp: bool | None = None
    kv_cache_dtype: KvCacheDtype | None = None
    draft_kv_cache_dtype: KvCacheDtype | None = None


def resumed(kept: Settings, asked: RequestedSettings) -> Settings:
    """Return the settings of a campaign that goes on. Raises CampaignError for any that was given and is another."""
    for field, value in asked._asdict().items():
        if value is not None and value != getattr(kept, field):
            name = "draft" if field == "drafts" else field
            expected = _shown(getattr(kept, field))
            raise CampaignError(
                f"invalid {name} '{_shown(value)}': expected {expected}, as in this campaign so far, or a new directory"
            )
    if kept.strategies != STRATEGIES_VERSION:
        raise CampaignError(
            f"invalid version {kept.strategies} of the strategies: expected {STRATEGIES_VERSION}, as this Draftproof"
            f" has; {OTHER_VERSION}"
        )
    return kept


def _shown(value: object) -> str:
    if isinstance(value, SubjectChoice):
        given = (f"{name} {text}" for name, text in value.options.items() if text and name != "subject")
        return " ".join((value.name or "none", *given))
    if isinstance(value, tuple):
        return "all" if value == ALGORITHMS else ", ".join(value)
    return "none" if value == "" else str(value)


def fresh(asked: RequestedSettings) -> Settings:
    """Return the settings of a new campaign."""
    given = {field: value for field, value in asked._asdict().items() if value is not None}
    return msgspec.structs.replace(Settings(), **given)


def memory(text: str | None) -> int | None:
    """500M or 4G in bytes; None: no limit. Raises CampaignError."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,5}(?:\.\d{1,3})?)([MG])", text.strip())
    value = int(float(found[1]) * _BYTES[found[2]]) if found else 0
    if value < LEAST_MEMORY:
        raise CampaignError(
            f"invalid --memory {text!r}: expected a number with M or G, as in 900M or 4G, at least 512M"
        )
    return value


def read(path: Path) -> Settings:
    """Return settings from campaign.json. Raises CampaignError."""
    try:
        return decode(path.read_bytes(), Settings, name=str(path))
    except OSError as error:
        raise CampaignError(f"{path} cannot be read: {error.strerror}") from None
    except InvalidScenarioError as error:
        why = f"an older Draftproof wrote it: {OTHER_VERSION}" if _has_settings(path) else "it is no campaign's"
        raise CampaignError(f"{error}; {why}") from None


def _has_settings(path: Path) -> bool:
    """Return whether a file is a campaign's, in whatever form."""
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError:
        return False
    return isinstance(raw, dict) and {"seed", "drafts", "strategies"} <= raw.keys()
