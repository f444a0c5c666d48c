"""The engines of a comparison: each is a log, a server, or a subject with a Python and settings of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from draftproof.cli import inputs, subjects
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice

_SERVER, _ENGINE = "openai", "engine"
_WEB = ("http://", "https://")
_OF_ENGINE = ("fault", "graphs", "patch")
"""What the built-in engine can be told here: it has no settings of its own."""
_ON = ("on", "off")


class Side(NamedTuple):
    """An engine as it was named: a log, or a subject, whose scenarios ask for graphs unless that is said otherwise."""

    name: str
    log: Path | None = None
    under_test: subjects.UnderTest = subjects.UnderTest()
    graphs: bool = True

    @property
    def is_patched(self) -> bool:
        """Whether it takes a copy of the engine's sources, and so a process of its own."""
        return self.under_test.fault is not None or self.under_test.patch is not None


def sides(names: Sequence[str], common: subjects.UnderTest, *, debug: bool) -> tuple[Side, ...]:
    """Return the engines that are named; what they do not say is as of the options. Raises InputError."""
    if len(names) < 2:
        raise inputs.InputError(f"invalid SIDE, {len(names)} of them: expected two or more engines or logs")
    found = tuple(_side(name, common._replace(debug=debug)) for name in names)
    if all(one.log is not None for one in found) and common.is_named:
        raise inputs.InputError(f"invalid --subject {common.choice.name!r}: expected none, as all engines are logs")
    return found


def _side(name: str, common: subjects.UnderTest) -> Side:
    if Path(name).is_file() or name.endswith(".jsonl"):
        if not Path(name).is_file():
            raise inputs.InputError(f"invalid SIDE {name!r}: expected a log that exists")
        return Side(name, Path(name))
    head, *pairs = name.split(",")
    if "=" in head and not head.startswith(_WEB):
        head, pairs = "", [head, *pairs]
    given = _settings(name, pairs)
    if head.startswith(_WEB):
        server = common.choice.name or _SERVER
        by_round = {"rounds": "yes"} if server == _SERVER else {}
        return Side(name, None, _chosen(name, common, server, "", {**by_round, "url": head, **given}))
    subject, _, python = head.partition("@")
    whose = subject or common.choice.name
    if whose in ("", _ENGINE) and not (python or common.choice.python):
        return _of_engine(name, common, given)
    return Side(name, None, _chosen(name, common, whose, python, given))


def _settings(name: str, pairs: Sequence[str]) -> Mapping[str, str]:
    try:
        return subjects.settings_of(pairs)
    except inputs.InputError as error:
        told = str(error).replace("invalid --set ", "", 1)
        raise inputs.InputError(
            f"invalid SIDE {name!r}: {told}, behind a log, a URL or [SUBJECT][@ENV/bin/python] and a comma"
        ) from None


def _chosen(
    name: str, common: subjects.UnderTest, subject: str, python: str, given: Mapping[str, str]
) -> subjects.UnderTest:
    """Return the subject of a side. Raises InputError."""
    settings = {**common.choice.settings, **given}
    try:
        choice = subjects.choice(
            subject or None, python or common.choice.python or None, None, [f"{k}={v}" for k, v in settings.items()]
        )
    except inputs.InputError as error:
        raise inputs.InputError(f"invalid SIDE {name!r}: {error}") from None
    return common._replace(choice=choice, is_named=True)


def _of_engine(name: str, common: subjects.UnderTest, given: Mapping[str, str]) -> Side:
    """Return the built-in engine with what is wrong with it, and with or without graphs. Raises InputError."""
    for one in (*common.choice.settings, *given):
        if one not in _OF_ENGINE:
            raise inputs.InputError(
                f"invalid SIDE {name!r}: expected of the built-in engine {', '.join(_OF_ENGINE)}, not {one}; --subject"
                " names another"
            )
    graphs = inputs.choose(given.get("graphs", "on"), _ON, f"SIDE {name!r}: graphs") == "on"
    if "fault" in given and "patch" in given:
        raise inputs.InputError(f"invalid SIDE {name!r}: expected fault or patch, not both")
    patch = Path(given["patch"]) if "patch" in given else None
    under_test = common._replace(choice=BUILT_IN_SUBJECT, fault=given.get("fault"), patch=patch)
    return Side(name, None, under_test, graphs)


def same_subject(found: Sequence[Side]) -> SubjectChoice | None:
    """Return the subject that all sides are, if it is one, in whatever Python and with whatever settings."""
    names = {one.under_test.choice.name for one in found if one.log is None}
    is_one = len(names) == 1 and all(one.log is None for one in found)
    return found[0].under_test.choice if is_one else None
