"""Where the definitions are: the chapters of docs/semantics/ in the order in which they are read, and who has which.

Every definition has a heading of its number alone, so that its anchor is the number in small letters.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from draftproof.properties.lib.errors import DraftproofError

FOLDER = "docs/semantics"
DEFINITION = re.compile(r"\bS-[A-Z]+-\d+\b")


class UnknownDefinitionError(DraftproofError, ValueError):
    """No chapter has definitions of this kind; the message says which kinds there are."""


class Chapter(NamedTuple):
    """A page of docs/semantics/: the name of its file, its title, the kinds of its definitions and what it is about.

    A `kind` is what stands between S- and the number. Chapters of one `part` are read one after the other.
    """

    part: str
    name: str
    title: str
    kinds: tuple[str, ...]
    about: str

    @property
    def path(self) -> str:
        """Return the path of the page in the repository."""
        return f"{FOLDER}/{self.name}.md"


def _chapter(part: str, name: str, title: str, kinds: str, about: str) -> Chapter:
    return Chapter(part, name, title, tuple(kinds.split()), about)


CHAPTERS: tuple[Chapter, ...] = (
    _chapter("Core", "round", "One round", "ROUND", "draft, verify, accept, commit; what losslessness means"),
    _chapter("Core", "limits", "Limits and the end of a request", "LIMIT", "how many drafts a round has; what ends it"),
    _chapter(
        "Core", "plan", "What a scenario plans", "PLAN DYNAMIC", "which drafts are forced, and what is known when"
    ),
    _chapter("Core", "follow", "What was verified", "FOLLOW", "what the reference takes from a run, and nothing else"),
    _chapter("Core", "traces", "Traces", "TRACE TOTAL", "keys and values; how far a float may be off; counters"),
    _chapter("Core", "channels", "Channels", "", "every channel, what it compares, and every struct of a value"),
    _chapter("Core", "subjects", "Subjects", "SUBJECT", "what an engine declares, what is fitted, what is covered"),
    _chapter("Drafts", "heads", "Draft heads", "HEAD", "what each kind of head takes and hands on"),
    _chapter("Drafts", "eagle", "EAGLE and EAGLE-3", "EAGLE", "entries, draft steps and extends; heads on features"),
    _chapter("Drafts", "trees", "Draft trees", "TREE", "candidates, kept nodes, the walk, columns, forced trees"),
    _chapter("Drafts", "mtp", "Chained multi-token prediction", "MTP", "one layer a proposal; no guess survives"),
    _chapter("Drafts", "dflash", "DFlash", "DFLASH", "one block of masked rows over features of the context"),
    _chapter("Drafts", "ngram", "N-gram and standalone drafts", "NGRAM STANDALONE", "a lookup; a small model"),
    _chapter("States", "states", "Recurrent states", "GDN STATE", "gated delta nets; commit by snapshot and by replay"),
    _chapter("Models", "probes", "Probe models", "PROBE VAC", "targets and drafts that are exact in integers"),
    _chapter("Models", "texts", "Texts of real models", "TEXT", "when a text that rounding changed is right"),
    _chapter("Models", "windows", "Windows", "WINDOW", "what a row sees, and which pages go back"),
    _chapter("Models", "kv-quantization", "KV quantization", "KV", "codes with scales; FP8 of real models"),
    _chapter("Models", "mrope", "M-RoPE", "MROPE", "three positions a token, images, and the index of a token"),
    _chapter("Kernels", "batches", "Batches, padding, graphs", "BATCH", "slots, padding rows, replays, work, leaks"),
    _chapter("Features", "sampling", "Sampled verification", "SAMPLE", "choices, coins, filters, logprobs"),
    _chapter("Features", "logits", "Penalties and grammars", "PENALTY GRAMMAR", "logits that a text changes or masks"),
    _chapter("Features", "adaptive-steps", "Adaptive steps", "ADAPT", "the two controllers of step counts"),
    _chapter("Features", "admission", "Order of admission", "SCHED", "who runs when; preemption, aborts, budgets"),
    _chapter("Features", "prefix-cache", "Prefix cache", "CACHE", "which pages are kept, served, locked and evicted"),
    _chapter("Features", "disaggregation", "PD disaggregation", "DISAGG", "a prefill engine and a decode engine"),
    _chapter("Features", "overlap", "Overlap", "OVERLAP", "a host that plans a step while the one before runs"),
    _chapter("Features", "mixed", "Mixed steps", "MIXED", "chunks and verify rows in one launch"),
    _chapter("Features", "ranks", "Ranks", "RANK TP", "data parallelism and tensor parallelism"),
    _chapter("Features", "beside", "What runs beside what", "", "every pair of features that is refused, and why"),
    _chapter("Audits", "audits", "Audits", "AUDIT", "acceptance rates, and the mistakes that explain them"),
)
_OF_KIND = {kind: chapter for chapter in CHAPTERS for kind in chapter.kinds}


def chapter_of(definition: str) -> Chapter:
    """Return the chapter that has a definition, as S-ROUND-3. Raises UnknownDefinitionError."""
    kind = definition.removeprefix("S-").partition("-")[0]
    if kind not in _OF_KIND:
        known = ", ".join(f"S-{one}" for one in _OF_KIND)
        raise UnknownDefinitionError(f"no definition {definition!r}: expected one of {known}")
    return _OF_KIND[kind]


def place_of(definition: str, folder: str = "") -> str:
    """Return the page and the anchor of a definition, as a link from a folder above the page ("": the repository)."""
    return f"{chapter_of(definition).path.removeprefix(folder)}#{definition.lower()}"


def linked(text: str, folder: str = f"{FOLDER}/") -> str:
    """Return a text in which each definition that it cites is a link, as from a page of a folder."""
    return DEFINITION.sub(lambda found: f"[{found[0]}]({place_of(found[0], folder)})", text)


def contents(folder: str = f"{FOLDER}/") -> str:
    """Return the chapters as a list of links, part by part."""
    lines, part = list[str](), ""
    for one in CHAPTERS:
        if one.part != part:
            part = one.part
            lines += ["", f"**{part}**", ""] if lines else [f"**{part}**", ""]
        kinds = ", ".join(f"S-{kind}" for kind in one.kinds)
        named = f" ({kinds})" if kinds else ""
        lines.append(f"- [{one.title}]({one.path.removeprefix(folder)}){named}: {one.about}")
    return "\n".join(lines)
