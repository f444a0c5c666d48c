"""`draftproof lab checkpoints`: tiny checkpoints with random weights, of every architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen

Folder = Annotated[Path, typer.Argument(help="The folder to write to, one of its own for each.", metavar="DIR")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Of sizes that vLLM and SGLang take, with one MTP layer, and EAGLE heads.")
]
Server = Annotated[
    bool, typer.Option("--server", help="As --wide, with a tokenizer whose words are ids, and without an end id.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the weights.", min=0, max=inputs.LAST_SEED)]
MtpLayers = Annotated[int, typer.Option("--mtp-layers", help="MTP layers of glm4-moe; of --wide one.", min=1, max=3)]


def checkpoints(
    folder: Folder, wide: Wide = False, server: Server = False, seed: Seed = 2, mtp_layers: MtpLayers = 3
) -> None:
    """Write tiny checkpoints of targets, and of their drafts.

    The weights are random.
    """
    try:
        import transformers  # noqa: F401  # which brings tokenizers: one thing to install, not two

        from draftproof.faults import engine_checkpoints, tiny_checkpoints
    except ImportError as error:
        raise inputs.InputError(f"no {error.name}: expected it installed, as by pip install {error.name}") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if wide or server:
            engine_checkpoints.write_all(folder, seed)
            if server:
                engine_checkpoints.make_servable(folder)
        else:
            tiny_checkpoints.write_all(folder, seed, mtp_layers)
    except OSError as error:
        raise inputs.InputError(f"invalid DIR '{folder}': it cannot be written: {error.strerror}") from None
    written = sorted(path.parent.name for path in folder.glob("*/config.json"))
    screen.line(f"wrote {folder}: {', '.join(written)}")
