"""`draftproof tracer`: checkpoints whose greedy output is known exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen, tracer_run

app = typer.Typer(
    help="Checkpoints with known output: build one, test an engine.",
    no_args_is_help=True,
)
Arch = Annotated[str, typer.Option("--arch", help="The architecture, as llama, qwen3-next or deepseek-v3.")]
Out = Annotated[Path, typer.Option("--out", help="The directory to write, new or empty.")]
Draft = Annotated[
    str | None,
    typer.Option("--draft", help="A draft: mtp in the checkpoint, or eagle, eagle3 or standalone, in a folder."),
]
Length = Annotated[int, typer.Option("--length", help="Tokens of the longest request.", min=32, max=1 << 17)]
Dtype = Annotated[str, typer.Option("--dtype", help="What the weights are stored in, and the margins hold for.")]
Window = Annotated[int, typer.Option("--window", help="Tokens that every other layer sees (qwen3; 0: all).", min=0)]
Tied = Annotated[bool, typer.Option("--tied", help="The embedding is the head, too (llama, qwen3; no head as draft).")]
Seed = Annotated[int, typer.Option("--seed", help="Another seed is another function.", min=0, max=inputs.LAST_SEED)]


app.command("run")(tracer_run.run)


@app.command("build")
def build_(
    arch: Arch,
    out: Out,
    draft: Draft = None,
    length: Length = 4096,
    dtype: Dtype = "bfloat16",
    seed: Seed = 0,
    window: Window = 0,
    tied: Tied = False,
) -> None:
    """Write a tracer checkpoint, as any engine loads it."""
    from draftproof.tracer.build import build

    try:
        built = build(out, arch, draft, seed=seed, length=length, dtype=dtype, window=window, tied=tied)
    except OSError as error:
        raise inputs.InputError(f"invalid --out '{out}': it cannot be written: {error.strerror}") from None
    told = ", ".join(f"{one.name} {one.value:.0f} ({one.least:.0f} at least)" for one in built.margins)
    screen.line(f"wrote {out}: {arch}, seed {seed}; margins at {dtype}: {told}")


@app.command("sensitivity")
def sensitivity_(
    out: Annotated[Path, inputs.output("--out", "The page to write, as Markdown.")],
    cases: Annotated[int, typer.Option("--cases", help="Cases of each mistake.", min=1, max=10_000)] = 160,
) -> None:
    """Write how soon each known mistake shows, by the oracle alone."""
    from draftproof.harness.machine import commit
    from draftproof.tracer.sensitivity import DRAFTED, markdown, tables

    with screen.progress("cases", cases * len(DRAFTED)) as advance:
        found = tables(cases, advance)
    inputs.write_text("--out", out, markdown(found, commit()))
    screen.line(f"wrote {out}")
