"""Which subject was asked for: what a user names, and what a case file remembers."""

from __future__ import annotations

import msgspec

from draftproof.properties.lib.base import Value


class SubjectChoice(Value, frozen=True, kw_only=True):
    """A subject by its name: an entry point's, or "package.module:name"; "" is the built-in engine.

    `python` is the interpreter that it runs in, as it was given ("": this one); `settings` are arguments of the
    factory, such as `url`.
    """

    name: str = ""
    python: str = ""
    settings: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def options(self) -> dict[str, object]:
        """The options of the command line that choose it."""
        others = [f"{name}={value}" for name, value in self.settings.items() if name != "url"]
        return {"subject": self.name, "python": self.python, "url": self.settings.get("url", ""), "set": others}


BUILT_IN_SUBJECT = SubjectChoice()
