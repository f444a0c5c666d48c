"""`draftproof lab engines`: released engines for machines without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import inputs, screen
from draftproof.properties.lib.extras import require_extra

app = typer.Typer(help="Pack released engines, and unpack them without a network.", no_args_is_help=True)
Release = Annotated[str, typer.Argument(help="The release of SGLang, as 0.5.13.", metavar="RELEASE")]
Out = Annotated[Path, typer.Option("--out", help="The folder to write slices to.", file_okay=False)]
Wheels = Annotated[
    Path | None,
    typer.Option("--wheels", help="The folder that keeps wheels (default: wheels in --out).", file_okay=False),
]
Python = Annotated[str, typer.Option("--python-version", help="The Python of the other machine.", metavar="X.Y")]
Packs = Annotated[Path, typer.Argument(help="The folder with packs.", metavar="DIR")]
Site = Annotated[Path, typer.Option("--to", help="The folder to install into.", file_okay=False)]


@app.command("pack")
def pack(release: Release, out: Out, wheels: Wheels = None, python: Python = "3.12") -> None:
    """Write a released SGLang, and what it imports, in slices.

    torch, Triton and what is never called are left out.
    """
    require_extra("releases", f"RELEASE {release!r}")
    from draftproof.fuzz.releases import packs

    try:
        made = packs.pack(release, out, wheels or out / "wheels", python)
    except OSError as error:
        raise inputs.InputError(f"invalid --out '{out}': it cannot be written: {error.strerror}") from None
    slices = ", ".join(f"{name} ({count})" for name, count in made.archives.items())
    screen.line(f"wrote {out}: {slices}; for Python {made.python} and torch {made.torch or 'of any version'}")


@app.command("unpack")
def unpack(packed: Packs, site: Site) -> None:
    """Install packed releases into a folder, which `--set engines=DIR` then names.

    Run it with the Python that is to run the engine.
    """
    require_extra("releases", f"DIR '{packed}'")
    from draftproof.fuzz.releases import packs

    for release in packs.unpack(packed, site):
        screen.line(f"sglang {release} is in {site}: --subject sglang --set release={release} --set engines={site}")
