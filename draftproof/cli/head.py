"""`draftproof lab head write`: an EAGLE head for a target, in the layout that SafeAILab published and engines read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen

app = typer.Typer(help="EAGLE heads as checkpoints.", no_args_is_help=True)
Model = Annotated[Path, typer.Option("--model", help="The target: a Hugging Face checkpoint directory.")]
Out = Annotated[Path, typer.Option("--out", help="The directory to write config.json and model.safetensors to.")]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", help="A safetensors file with the head's tensors (default: random).", dir_okay=False),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of random weights.", min=0, max=inputs.LAST_SEED)]


@app.callback()
def _group() -> None:
    """Keep `write` a command of its own."""


@app.command("write")
def write(model: Model, out: Out, weights: Weights = None, seed: Seed = 0) -> None:
    """Write an EAGLE head for a target, random or from given tensors.

    Tensors are named as in the directory of a head: fc.weight, layers.0.self_attn.q_proj.weight, ..
    """
    from draftproof.harness.head_files import write_head

    if not model.is_dir():
        raise inputs.InputError(f"invalid --model '{model}': expected a directory with config.json")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise inputs.InputError(f"invalid --out '{out}': it is there; expected a new or an empty directory")
    try:
        written = write_head(model, out, weights, seed)
    except OSError as error:
        raise inputs.InputError(f"invalid --out '{out}': it cannot be written: {error.strerror}") from None
    screen.line(f"wrote {out}: {written} tensors")
