"""Checkpoints with computed weights, whose greedy output is an exact integer function of the tokens before.

The names in `__all__` are public (docs/tracer.md); they import no torch until a checkpoint is built.
"""

from draftproof.tracer.build import build
from draftproof.tracer.depends import reads_of
from draftproof.tracer.generate import generated
from draftproof.tracer.oracle import ReadView, continuation, rounds
from draftproof.tracer.program import read_program

__all__ = ["ReadView", "build", "continuation", "generated", "read_program", "reads_of", "rounds"]
