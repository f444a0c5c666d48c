"""A table of releases as Markdown: parts by release, contracts that do not hold everywhere, first divergences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from draftproof.fuzz.releases.table import Held, ReleaseTable
from draftproof.properties.values.verdict import Outcome, worst
from draftproof.report.text import sentence

_QUIET = (Outcome.PASS, Outcome.SKIP, Outcome.ABSENT)


def markdown(report: ReleaseTable) -> str:
    """Return a table of parts, one of the contracts that do not hold of every release, and what is not runnable.

    Every first divergence stands below. A part is as its worst contract.
    """
    versions = [row.version for row in report.releases]
    parts: dict[str, dict[str, list[Held]]] = {}
    cells: dict[tuple[str, str], dict[str, Held]] = {}
    for row in report.releases:
        for one in row.contracts:
            parts.setdefault(one.part, {}).setdefault(row.version, []).append(one)
            cells.setdefault((one.part, one.name), {})[row.version] = one
    lines = [f"# Releases of {report.package}", "", *_head("part", *versions)]
    lines += [_line(part, *_of(found, versions)) for part, found in parts.items()]
    loud = [(key, found) for key, found in cells.items() if any(one.verdict not in _QUIET for one in found.values())]
    if loud:
        lines += ["", "Contracts that do not hold of every release:", "", *_head("part", "contract", *versions)]
    for (part, name), found_of in loud:
        verdicts = (str(found_of[version].verdict) if version in found_of else "" for version in versions)
        lines.append(_line(part, f"`{name}`", *verdicts))
    lines += [""] + [f"- {row.version} is not runnable: {row.reason}" for row in report.releases if not row.runnable]
    for row in report.releases:
        for one in row.contracts:
            if one.verdict not in _QUIET:
                said = sentence(one.first) if one.first is not None else one.reason
                lines.append(f"- {row.version}, {one.part}, `{one.name}`: {_one_line(said)}")
    return "\n".join(lines).rstrip() + "\n"


def _of(found: Mapping[str, Sequence[Held]], versions: Sequence[str]) -> list[str]:
    """Return what is said of a part by release: the worst of its contracts, or why none was judged."""
    said = []
    for version in versions:
        verdicts = [one.verdict for one in found.get(version, ())]
        judged = any(one not in (Outcome.SKIP, Outcome.ABSENT) for one in verdicts)
        said.append(str(worst(verdicts) if judged else verdicts[0]) if verdicts else "")
    return said


def _head(*cells: str) -> tuple[str, str]:
    return _line(*cells), _line(*["---"] * len(cells))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
