"""Mistakes that engines make, each as what the oracle reads in place of what is right.

A mistake changes rows of request 0 only, and either the target's or the draft's.
"""

from __future__ import annotations

from draftproof.tracer.mistakes.of_drafts import drafts
from draftproof.tracer.mistakes.of_states import memories
from draftproof.tracer.mistakes.of_text import prefixes, targets
from draftproof.tracer.program import Program
from draftproof.tracer.simulated import EngineMistake


def every(program: Program, prompt: int, width: int, *, of_draft: bool) -> list[EngineMistake]:
    """Return the mistakes of the draft or the target that a program and a prompt of so many tokens allow."""
    if of_draft:
        return [*drafts(program, prompt, width)] if width else []
    found = [*targets(program, prompt), *prefixes(prompt)]
    if any(layer.memories for layer in program.layers):
        found += memories()
    return [one for one in found if width or not (one.runs_rejected or one.target_keeps)]
