"""The drafts of a check: which the options name, what the scenarios of each are, and what each of them came to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from draftproof.cli import inputs, screen
from draftproof.properties.values.drafts import (
    ALGORITHMS,
    DRAFT_KINDS_BY_NAME,
    DRAFT_SETS,
    KV_CACHE_DTYPES,
    Algorithm,
    DraftSet,
    KvCacheDtype,
    drafts_of,
    read_from,
)
from draftproof.properties.values.limits import NO_LIMITS, Limits

if TYPE_CHECKING:
    from draftproof.harness.checkpoint_scenarios import KvDtypes
    from draftproof.properties.values.scenario import Scenario

Draft = Annotated[
    list[str] | None,
    typer.Option(
        "--draft",
        help=f"How drafts are proposed: {', '.join(DRAFT_SETS[:-1])} or all (default: all; with --model eagle).",
    ),
]
Model = Annotated[
    Path | None, typer.Option("--model", help="The target model: a Hugging Face checkpoint directory (safetensors).")
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--draft-model",
        help="With --model, the checkpoint directory of the draft: an EAGLE head (without it one is made up), an"
        " EAGLE-3 head, a DFlash draft or a smaller language model (say which with --draft).",
    ),
]
Mtp = Annotated[
    bool, typer.Option("--mtp", help="With --model and --draft eagle: the checkpoint's first MTP layer is the head.")
]
KvCache = Annotated[
    str,
    typer.Option(
        "--kv-cache-dtype",
        help=f"With --model, how the target keeps its KV entries: {' or '.join(KV_CACHE_DTYPES)} (with the checkpoint's"
        " k_scale and v_scale).",
    ),
]
DraftKvCache = Annotated[
    str, typer.Option("--draft-kv-cache-dtype", help="The same of the draft, whatever the target has.")
]


_KEPT = ("--kv-cache-dtype", "--draft-kv-cache-dtype")
_MADE_UP = read_from("directory or seed")
_FROM_FOLDER = read_from("directory", "directory or seed")


class Chosen(NamedTuple):
    """What the options say of target and drafts. `draft` is None where nothing was said; `of` the subject has."""

    draft: DraftSet | None
    model: Path | None
    draft_model: Path | None
    mtp: bool
    kv_cache_dtype: KvCacheDtype = "auto"
    draft_kv_cache_dtype: KvCacheDtype = "auto"
    of: tuple[Algorithm, ...] = ALGORITHMS

    @property
    def name(self) -> DraftSet:
        """The named draft, or what is run where none is named."""
        unnamed: DraftSet = "all" if self.model is None else _MADE_UP[0] if _MADE_UP[0] in self.of else self.of[0]
        return self.draft or unnamed

    @property
    def folders(self) -> dict[str, Path]:
        """The checkpoints by the option that names them."""
        given = {"--model": self.model, "--draft-model": self.draft_model}
        return {option: path for option, path in given.items() if path}

    @property
    def arguments(self) -> dict[str, object]:
        """The options that say the same again."""
        given = {name: value for name, value in self._asdict().items() if name != "of" and value != "auto"}
        return {**given, "draft": self.name}

    @property
    def kv_dtypes(self) -> KvDtypes:
        """How target and draft keep their entries."""
        from draftproof.harness.checkpoint_scenarios import KvDtypes

        return KvDtypes(self.kv_cache_dtype, self.draft_kv_cache_dtype)


class DraftOptions(NamedTuple):
    """The options as they were given."""

    draft: list[str] | None
    model: Path | None
    draft_model: Path | None
    mtp: bool
    kv_cache_dtype: str = "auto"
    draft_kv_cache_dtype: str = "auto"


def given(
    draft: Draft = None,
    model: Model = None,
    draft_model: Folder = None,
    mtp: Mtp = False,
    kv_cache_dtype: KvCache = "auto",
    draft_kv_cache_dtype: DraftKvCache = "auto",
) -> DraftOptions:
    """Return the options of a command that name target and drafts. Raises InputError for no directories."""
    for option, path in (("--model", model), ("--draft-model", draft_model)):
        if model is not None and path is not None and not path.is_dir():
            raise inputs.InputError(f"invalid {option} '{path}': expected a directory with config.json")
    return DraftOptions(draft, model, draft_model, mtp, kv_cache_dtype, draft_kv_cache_dtype)


def chosen(options: DraftOptions, limits: Limits = NO_LIMITS) -> Chosen:
    """Return the options if they go together, and with what the subject can run. Raises InputError."""
    draft, model, folder, mtp, *kept = options
    target_dtype, own_dtype = (inputs.choose(one, KV_CACHE_DTYPES, name) for name, one in zip(_KEPT, kept, strict=True))
    named = [inputs.choose(one, DRAFT_SETS, "--draft") for one in draft or ()]
    if len(named) > 1:
        raise inputs.InputError(f"invalid --draft: expected one name or all, not {' and '.join(named)}")
    for name, dtype in zip(_KEPT, (target_dtype, own_dtype), strict=True):
        if dtype != "auto" and (model is None or not limits.takes("kv-quantization")):
            expected = "auto, the only one that this subject has" if model else "only together with --model"
            raise inputs.InputError(f"invalid {name} {dtype!r}: expected {expected}")
    found = Chosen(named[0] if named else None, model, folder, mtp, target_dtype, own_dtype, limits.drafts)
    if model is None and "probe" not in limits.models:
        raise inputs.InputError("invalid --subject without --model: expected a checkpoint, which this subject needs")
    if found.name not in ("all", *limits.drafts):
        raise inputs.InputError(
            f"invalid --draft {found.name!r}: expected one that the subject has, {', '.join(limits.drafts)} or all"
        )
    if model is None and (folder or mtp):
        given = "--mtp" if mtp else f"--draft-model '{folder}'"
        raise inputs.InputError(f"invalid {given}: expected only together with --model")
    if mtp and found.name not in _MADE_UP:
        raise inputs.InputError(f"invalid --mtp with --draft {found.name}: expected --draft {_MADE_UP[0]}")
    if mtp and folder:
        raise inputs.InputError(f"invalid --draft-model '{folder}': expected a directory or --mtp, not both")
    if folder and found.name not in (*_FROM_FOLDER, "all"):
        takers = f"{', '.join(_FROM_FOLDER)} or all"
        raise inputs.InputError(f"invalid --draft-model with --draft {found.name}: expected --draft {takers}")
    if model and not folder and found.name in read_from("directory"):
        raise inputs.InputError(f"invalid --draft {found.name!r}: expected --draft-model with its checkpoint")
    return found


def named(options: Chosen) -> tuple[Algorithm, ...] | None:
    """Return the drafts that a campaign was asked for; None: whatever there is."""
    if options.draft is None or (options.draft == "all" and options.model is not None):
        return None
    return tuple(name for name in drafts_of(options.draft) if name in options.of)


def scenarios(options: Chosen, seed: int, count: int) -> list[Scenario]:
    """Return the scenarios of a check. Raises InputError for directories that cannot be used."""
    return list(generated(options, seed, count))


def generated(options: Chosen, seed: int, count: int, features: Sequence[str] = ()) -> Iterator[Scenario]:
    """Yield them, each drawn when it is asked for; most of probes have all `features`. Raises InputError at once."""
    if options.model is None:
        from draftproof.properties.strategies import scenarios as of_probes

        names = tuple(name for name in drafts_of(options.name) if name in options.of)
        return of_probes.generated(seed, count, names, features=features)
    try:
        return _real(options.model, options, seed, count)
    except (ValueError, OSError) as error:
        # An error of a checkpoint names its file.
        is_named = any(str(path) in str(error) for path in options.folders.values())
        parts = (option if is_named else f"{option} {path}" for option, path in options.folders.items())
        is_unnamed = options.draft is None and options.draft_model is not None
        others = ", ".join(name for name in _FROM_FOLDER if name != options.name)
        hint = f" (if it is of another draft than {options.name}: expected --draft {others})" if is_unnamed else ""
        raise inputs.InputError(f"{', '.join(parts)}: {error}{hint}") from None


def _real(model: Path, options: Chosen, seed: int, count: int) -> Iterator[Scenario]:
    from draftproof.harness.checkpoint_scenarios import every_draft, generated_real, one_draft

    if options.name != "all":
        folder, dtypes = options.draft_model, options.kv_dtypes
        draft = one_draft(model, options.name, folder, seed, built_in=options.mtp, kv_dtypes=dtypes)
        return generated_real(model, [draft], seed, count, options.kv_cache_dtype)
    offer = every_draft(model, options.draft_model, seed, options.kv_dtypes)
    offered = [one for one in offer.drafts if one.name in options.of]
    told = ", ".join(f"{one.name} ({one.origin})" for one in offered)
    lacking = "".join(f"; no {name} ({why})" for name, why in offer.lacking.items() if name in options.of)
    screen.line(f"drafts: {told}{lacking}")
    if not offered:
        raise ValueError(
            f"invalid --draft all: the checkpoint has none of the subject's drafts, {', '.join(options.of)}"
        )
    return generated_real(model, offered, seed, count, options.kv_cache_dtype)


def show(drafts: Mapping[str, Mapping[str, int]], *, with_counts: bool, with_rounds: bool = True) -> None:
    """Print a row for each draft: how much of it ran, what became of its own drafts and of forced ones, and its counts.

    Counts if asked; without rounds, of a subject that shows none, it is its scenarios.
    """
    if not with_rounds:
        screen.show(
            ("draft", "scenarios"),
            [(name, str(counts["scenarios"])) for name, counts in drafts.items()],
            right=("scenarios",),
        )
        return
    by_whom = ("own accepted/rejected", "forced accepted/rejected")
    columns = ("draft", "scenarios", "decode rounds", *by_whom, *(["counted"] if with_counts else []))
    rows = []
    for name, counts in drafts.items():
        accepted, rejected = counts["own_accepted"], counts["own_rejected"]
        forced = f"{counts['drafts_accepted'] - accepted}/{counts['drafts_rejected'] - rejected}"
        cells = (name, str(counts["scenarios"]), str(counts["decode_rounds"]), f"{accepted}/{rejected}", forced)
        counted = ", ".join(f"{count} {counts[count]}" for count in DRAFT_KINDS_BY_NAME[name].minimum)
        rows.append((*cells, counted) if with_counts else cells)
    screen.show(columns, rows, right=("scenarios", "decode rounds"))
