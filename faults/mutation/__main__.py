"""`python -m draftproof.faults.mutation`: the mutation score, and the survivors that want a triage."""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import jinja2
import typer
from rich.console import Console

from draftproof.faults.kept import MUTANTS, KeptResults, RunSettings, beside
from draftproof.faults.kept import described as described_files
from draftproof.faults.mutation.mutant import NOT_MUTATED, RULES, Mutant, Sample
from draftproof.faults.mutation.score import KILLED, MUTANTS_AT_ONCE, Fate, Score, judge_all
from draftproof.harness.checkpoint_scenarios import every_draft, one_draft, real_scenarios
from draftproof.properties.formats.case import decode, encode
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.files import write_whole
from draftproof.properties.values.drafts import DRAFT_KINDS_BY_NAME, read_from
from draftproof.properties.values.scenario import Scenario

_INTERRUPTED = 130
_TEMPLATE = Path(__file__).with_name("score.md.j2")

Seed = Annotated[int, typer.Option("--seed", min=0, help="Which mutants are sampled, and which scenarios they meet.")]
Count = Annotated[int, typer.Option("--count", min=1, help="How many mutants.")]
Examples = Annotated[int, typer.Option("--examples", min=1, help="Scenarios that a mutant has to survive.")]
Models = Annotated[
    list[Path] | None,
    typer.Option("--model", help="A tiny checkpoint; mutants of models meet it, too (may be repeated).", exists=True),
]
DraftModels = Annotated[
    list[Path] | None,
    typer.Option(
        "--draft-model", help="A draft that is tried with every checkpoint it fits (may be repeated).", exists=True
    ),
]
ModelExamples = Annotated[int, typer.Option("--model-examples", min=1, help="Scenarios of each checkpoint.")]
Parallel = Annotated[
    int | None,
    typer.Option("--parallel", min=1, help="How many mutants run at once (default: 2); workers of a cluster."),
]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Run them in the Ray cluster at this address.")]
Read = Annotated[Path | None, typer.Option("--sample", help="Mutants that were sampled before.", exists=True)]
Write = Annotated[Path | None, typer.Option("--write-sample", help="Write the sampled mutants here, and run none.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the score here.")]
Document = Annotated[Path | None, typer.Option("--md", help="Write it as a document here.")]


def main(
    seed: Seed = 0,
    count: Count = 300,
    examples: Examples = 60,
    model: Models = None,
    draft_model: DraftModels = None,
    model_examples: ModelExamples = 12,
    parallel: Parallel = None,
    cluster: Cluster = None,
    read: Read = None,
    write: Write = None,
    json: Json = None,
    md: Document = None,
) -> None:
    """Mutate the engine and the kernels, and see what the contracts notice."""
    if cluster:
        from draftproof.harness.cluster.address import require_cluster

        require_cluster(cluster)
    console = Console(stderr=True)
    if read:
        mutants = list(decode(read.read_bytes(), Sample, name=str(read)).mutants)
    else:
        # Needs cosmic-ray, which running mutants does not.
        from draftproof.faults.mutation.mutants import sample

        with console.status("sampling"):
            mutants = sample(seed, count)
    if write:
        write.write_text(encode(Sample(seed=seed, mutants=tuple(mutants))) + "\n", encoding="utf-8")
        return
    done = itertools.count(1)

    def progress(_id: str) -> None:
        if sys.stderr.isatty():
            console.print(f"{next(done)} runs of {len(mutants)} mutants", end="\r")

    models = _scenarios(model or (), draft_model or (), seed, model_examples)
    settings = RunSettings(
        seed=seed,
        seeds=1,
        examples=examples,
        device="cpu",
        model=tuple(described_files(str(path)) for path in (*(model or ()), *(draft_model or ()))),
    )
    with ExitStack() as stack:
        kept = stack.enter_context(_kept(json, settings, mutants, console)) if json else None
        serve = None
        if cluster:
            from draftproof.faults.on_nodes import ClusterServer

            serve = stack.enter_context(ClusterServer(cluster, "cpu", parallel, tell=console.print)).run
        keep = kept.serve if kept else lambda serve: serve
        try:
            score = judge_all(mutants, seed, examples, models, progress, parallel or MUTANTS_AT_ONCE, serve, keep)
        except KeyboardInterrupt:
            where = "there are no results yet"
            if not kept:
                where = "nothing was kept: --json FILE would keep results"
            elif kept.tried:
                where = f"{kept.path} keeps results of {kept.tried} mutants, and the same command goes on"
            console.print(f"interrupted: {where}", soft_wrap=True)
            raise typer.Exit(_INTERRUPTED) from None
        document = described(score, examples)
        typer.echo(document)
        if json and kept:
            write_whole(json, encode(score) + "\n")
            kept.remove()
    if md:
        md.write_text(document, encoding="utf-8")


def _kept(json: Path, settings: RunSettings, mutants: Sequence[Mutant], console: Console) -> KeptResults:
    """Return the results of a run that was cut, or where those of this one are kept. Raises KeptResultsError."""
    kept = KeptResults(beside(json), settings, [mutant.id for mutant in mutants], MUTANTS)
    if kept.tried:
        console.print(f"resumed: {kept.path} has results of {kept.tried} of {len(mutants)} mutants", soft_wrap=True)
    return kept


def _scenarios(models: Sequence[Path], drafts: Sequence[Path], seed: int, count: int) -> list[Scenario]:
    """Return `count` scenarios of each checkpoint, with every draft that it allows and every directory that fits it.

    Raises ValueError for a bad checkpoint and for a draft that fits none of them.
    """
    scenarios, reasons = [], dict.fromkeys(drafts, "there is no checkpoint to try it with")
    fitting: set[Path] = set()
    for path in models:
        offered = list(every_draft(path.resolve(), None, seed).drafts)
        if any(DRAFT_KINDS_BY_NAME[one.name].layer_a_draft for one in offered):
            # Its first MTP layer is a head as well.
            heads = read_from("directory or seed")
            offered += (one_draft(path.resolve(), name, None, seed, built_in=True) for name in heads)
        for draft in drafts:
            try:
                offered += every_draft(path.resolve(), draft.resolve(), seed).drafts
                fitting.add(draft)
            except ValueError as error:
                reasons[draft] = str(error)
        scenarios += real_scenarios(path.resolve(), tuple(dict.fromkeys(offered)), seed, count)
    for draft in drafts:
        if draft not in fitting:
            raise ValueError(f"invalid --draft-model {draft}: expected one that fits a --model: {reasons[draft]}")
    return scenarios


def described(score: Score, examples: int) -> str:
    """Return the score as a document."""
    fates = Counter(one.fate for one in score.mutants)
    noticed = Counter(
        one.by if one.fate is Fate.CONTRACT else f"({one.fate})" for one in score.mutants if one.fate in KILLED
    )
    template = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(
        _TEMPLATE.read_text(encoding="utf-8")
    )
    return template.render(
        score=score,
        examples=examples,
        left_out=NOT_MUTATED,
        rules=RULES,
        noticed=sorted(noticed.items(), key=lambda item: (-item[1], item[0])),
        count=lambda fate: fates[fate],
        share=lambda part: f"{100 * part / score.judged:.1f} %" if score.judged else "none",
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        typer.run(main)
    except DraftproofError as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
