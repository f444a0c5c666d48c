"""A subject to fill in: the file that `draftproof init` writes."""

from __future__ import annotations

import re
from importlib import resources

SUBJECT_LEVELS = ("text", "rounds", "drafts", "caches")
"""How much an engine can be made to tell, each level with all that the ones before it have."""
_CHANNELS = (
    ("accept.emitted",),
    ("accept.correct_len",),
    ("propose.tokens", "round.drafts"),
    ("commit.kv", "commit.length"),
)


def module_of(engine: str) -> str:
    """Return the name of an engine as that of a module; "" if nothing of it can be one."""
    return re.sub(r"\W+", "_", engine, flags=re.ASCII).strip("_").lower()


def subject_file(engine: str, draft: str, level: str) -> str:
    """Return the text of the module."""
    import jinja2

    told = sorted(name for of_level in _CHANNELS[: 1 + SUBJECT_LEVELS.index(level)] for name in of_level)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = resources.files("draftproof.report").joinpath("subject.py.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        name=engine,
        draft=draft,
        level=level,
        module=f"{module_of(engine)}_subject",
        kind="".join(part.capitalize() for part in module_of(engine).split("_")) + "Subject",
        channels=" ".join(told),
    )
