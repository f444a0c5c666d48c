"""Make the report that the documents show, and a picture of it: a campaign on a known bug, in Chromium.

    python -m tests.pictured

Writes docs/example-report.html, docs/images/report.png, and beside it of which version of the scenarios and which
commit both are.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from draftproof.harness.machine import commit
from draftproof.properties.strategies.version import STRATEGIES_VERSION

DOCS = Path(__file__).resolve().parent.parent / "docs"
REPORT, PICTURE, MADE = DOCS / "example-report.html", DOCS / "images/report.png", DOCS / "images/report.txt"
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
        # The report names its campaign as the commands do that it shows.
        how = ("--fault", _FAULT, "--draft", "eagle", "--seed", "1", "--workers", "1", "--examples", "24")
        campaign = [*draftproof, "fuzz", "--run", "campaign", *how]
        ended = subprocess.run(campaign, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        if ended.returncode != _FAILS:
            sys.exit(f"the campaign on {_FAULT} ended with {ended.returncode}: expected {_FAILS}, a finding")
        subprocess.run([*draftproof, "report", "campaign", "--out", REPORT], cwd=folder, check=True)
    subprocess.run([browser, *flags, f"--screenshot={PICTURE}", REPORT], check=True)
    MADE.write_text(f"strategies version {STRATEGIES_VERSION}, commit {commit()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
