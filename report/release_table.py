"""A table of releases as Markdown: contracts by release, and the first divergence of each."""

from __future__ import annotations

from draftproof.fuzz.releases.table import Held, ReleaseTable
from draftproof.properties.values.verdict import Outcome
from draftproof.report.text import sentence

_QUIET = (Outcome.PASS, Outcome.SKIP, Outcome.ABSENT)


def markdown(report: ReleaseTable) -> str:
    """Return the table, what is not runnable, and every first divergence below it."""
    cells: dict[tuple[str, str], dict[str, Held]] = {}
    for row in report.releases:
        for one in row.contracts:
            cells.setdefault((one.part, one.name), {})[row.version] = one
    versions = [row.version for row in report.releases]
    lines = [
        f"# Releases of {report.package}",
        "",
        _line("part", "contract", *versions),
        _line(*["---"] * (len(versions) + 2)),
    ]
    for (part, name), found in cells.items():
        verdicts = (str(found[version].verdict) if version in found else "" for version in versions)
        lines.append(_line(part, f"`{name}`", *verdicts))
    lines += [""] + [f"- {row.version} is not runnable: {row.reason}" for row in report.releases if not row.runnable]
    for row in report.releases:
        for one in row.contracts:
            if one.verdict not in _QUIET:
                said = sentence(one.first) if one.first is not None else one.reason
                lines.append(f"- {row.version}, {one.part}, `{one.name}`: {_one_line(said)}")
    return "\n".join(lines).rstrip() + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
