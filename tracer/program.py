"""The graph of a tracer checkpoint: operations on bits, as frozen values that are stored beside the weights.

A row is what the model keeps of one token: a tuple of bits by dimension. Every dimension starts as 1 and is written
once, by the embedding or by one operation, so a row when it is done has also every bit that an earlier layer saw.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from draftproof.properties.lib.errors import CheckpointError

FILE = "tracer.json"
TRUE, FIRST = 0, 1
"""Dimensions: a bit that is always 1, and one that only the first token of every prompt has."""
BYTES, BOS, END, VOCABULARY = 256, 256, 257, 320
"""Ids: bytes are themselves, and the only ones that a tracer emits; the first token of a prompt is BOS, which is
nowhere else; END and the ids behind it may be in prompts."""

SLOT_BITS, TAPS = 6, 4
"""Of a memory: the binary digits of a slot's number, and the rows of a convolution's window."""


class CopyHead(msgspec.Struct, frozen=True):
    """One attention head: bits of the row at a distance.

    With several distances, `select` has as many bits, of which exactly one is 1 and chooses. Where the prompt is
    shorter than the distance, the first row is read.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    distances: tuple[int, ...]
    select: tuple[int, ...] = ()


class Table(msgspec.Struct, frozen=True):
    """A Boolean function: the bit `lead`, flipped where `values` has 0 at the number that the inputs make.

    Inputs count from the lowest binary digit. A table of `routed` ones starts with the layer's two bits of a route. A
    `firm` one, which is fed back along a chain, takes two units a line: what its inputs deviate by goes no further. One
    that writes `again` has a target that was written before.
    """

    target: int
    lead: int
    inputs: tuple[int, ...]
    values: tuple[int, ...]
    routed: bool = False
    firm: bool = False
    again: bool = False


class Address(msgspec.Struct, frozen=True):
    """A slot of a memory: its number is made of bits of the row `back` rows ago; there is none before the first."""

    bits: tuple[int, ...]
    back: int


class SlotMemory(msgspec.Struct, frozen=True):
    """One value head of a gated delta net: slots that keep what was written last.

    In each row: if all bits of `clears` are 1, and there are any, every slot is emptied; if the bit `writes` is 1, the
    bits `sources` of the row `back` rows ago go to a slot; then a slot is read, which may be that one. An empty slot
    reads as ones.
    """

    write: Address
    read: Address
    sources: tuple[int, ...]
    back: int
    writes: int
    clears: tuple[int, ...]
    targets: tuple[int, ...]


class BitLayer(msgspec.Struct, frozen=True):
    """Either copies or memories, then tables; `route` is what sends a row to an expert where there are any."""

    copies: tuple[CopyHead, ...]
    memories: tuple[SlotMemory, ...]
    tables: tuple[Table, ...]
    route: tuple[int, int]


class BitHead(msgspec.Struct, frozen=True):
    """A draft of one layer: EAGLE's, EAGLE-3's or MTP's.

    Row i takes bits of the embedding of token i + 1 and of the state of row i, the target's or, in a chain, the draft's
    of row i - 1: (dimension, from dimension) each. Dimensions in `zeros` are 0, all others 1. Its distances are those
    between its own rows. One that is given features has no projection of its own states: it keeps its dimensions, and
    its tables write again what they or copies wrote in the row before.
    """

    embedded: tuple[tuple[int, int], ...]
    handed: tuple[tuple[int, int], ...]
    zeros: tuple[int, ...]
    first: int
    layer: BitLayer
    features: bool = False


class Program(msgspec.Struct, frozen=True):
    """A target. `codes` are the bits of each id in the dimensions `embedded`; `outputs` make the byte that follows.

    Its draft is a head, or a model of its own. Layers 0, 2, .. see so many tokens as `window` says, where it is not 0.
    With tied embeddings the outputs are where ids are embedded.
    """

    width: int
    embedded: tuple[int, ...]
    codes: tuple[tuple[int, ...], ...]
    layers: tuple[BitLayer, ...]
    outputs: tuple[int, ...]
    head: BitHead | None = None
    small: Program | None = None
    window: int = 0

    @property
    def is_tied(self) -> bool:
        """Whether the embedding is the head, too."""
        return self.outputs[0] in self.embedded

    @property
    def has_draft(self) -> bool:
        """Whether there is one."""
        return self.head is not None or self.small is not None


def write_program(program: Program, directory: Path) -> None:
    """Write a program beside its weights."""
    (directory / FILE).write_bytes(msgspec.json.encode(program))


def read_program(directory: Path) -> Program:
    """Read the program of a tracer checkpoint. Raises CheckpointError."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Program)
    except (OSError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"{directory / FILE}: expected the program of a tracer checkpoint: {error}") from None
