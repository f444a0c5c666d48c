"""Take the picture of a report that the documents show: a campaign on a known bug, in Chromium.

    python -m tests.pictured

Writes docs/images/report.png, and beside it of which version of the scenarios and which commit it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from draftproof.harness.machine import commit
from draftproof.properties.strategies.version import STRATEGIES_VERSION

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
PICTURE, MADE = IMAGES / "report.png", IMAGES / "report.txt"
_FAULT = "draft-positions-advanced-early"
_FAILS = 1
"""What a campaign that found something ends with."""


def main() -> None:
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("no chromium here: apt-get install chromium")
    draftproof = (sys.executable, "-P", "-m", "draftproof.cli")
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,1150")
    with tempfile.TemporaryDirectory() as folder:
        run, page = f"{folder}/run", f"{folder}/report.html"
        how = ("--fault", _FAULT, "--draft", "eagle", "--seed", "1", "--workers", "1", "--examples", "24")
        ended = subprocess.run([*draftproof, "fuzz", "--run", run, *how], stdout=subprocess.DEVNULL, check=False)
        if ended.returncode != _FAILS:
            sys.exit(f"the campaign on {_FAULT} ended with {ended.returncode}: expected {_FAILS}, a finding")
        subprocess.run([*draftproof, "report", run, "--out", page], check=True)
        subprocess.run([browser, *flags, f"--screenshot={PICTURE}", page], check=True)
    MADE.write_text(f"strategies version {STRATEGIES_VERSION}, commit {commit()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
