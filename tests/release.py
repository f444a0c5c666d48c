"""Say what is wrong with a release before it is built: its tag, its version, its entry in CHANGELOG.md.

python -m tests.release v1.2.3
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## (Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\))$", re.MULTILINE)
"""A section of the changelog: what has no release yet, or a version with its date."""


def wrong(tag: str, version: str, changelog: str) -> list[str]:
    """Return what is wrong, in sentences; nothing of a release that can be built."""
    found = []
    if tag != f"v{version}":
        found.append(f"invalid tag {tag!r}: expected v{version}, the version in pyproject.toml")
    sections = HEADING.split(changelog)[1:]
    texts = dict(zip(sections[::2], sections[1::2], strict=True))
    if not any(name.startswith(f"{version} (") for name in texts):
        found.append(f"invalid CHANGELOG.md: expected a section '## {version} (YYYY-MM-DD)'")
    if texts.get("Unreleased", "").strip():
        found.append("invalid CHANGELOG.md: expected nothing under Unreleased; move it below the version")
    return found


def version() -> str:
    """Return the version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description="Check a release before it is built.")
    parser.add_argument("tag", help="the tag, as v1.2.3")
    if found := wrong(parser.parse_args().tag, version(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
