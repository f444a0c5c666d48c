"""The form that a draft runs in, as far as launches and memory show it: what its kind declares, and its layers.

`K` drafts of a round, n the context length before it, a of the drafts accepted, `L` layers of a chain.
"""

from __future__ import annotations

from typing import NamedTuple

from draftproof.properties.values.drafts import CheckpointDraft, Draft, DraftKind, Proposes, kind_of
from draftproof.properties.values.observed import DraftNeeds
from draftproof.properties.values.tree import Tree


class Form(NamedTuple):
    """A kind of draft, and how many layers with entries of its own it has; of a tree also its possible steps."""

    kind: DraftKind
    layers: int
    tree: Tree | None = None
    steps: tuple[int, ...] = ()

    @property
    def proposes(self) -> Proposes:
        return self.kind.proposes

    @property
    def extend_launches(self) -> int:
        return self.layers if self.proposes == "chain" else int(self.kind.extends)

    @property
    def reach(self) -> int:
        """Return how many positions before n an extend may compute again: entries made with a guess."""
        return self.layers - 1 if self.proposes == "chain" else 0

    @property
    def lookahead(self) -> int:
        """Return how many tokens behind its own position an entry is made of."""
        return self.layers if self.proposes == "chain" else int(self.kind.proposes_at_extend)

    @property
    def repeats(self) -> bool:
        """Return whether an extend may compute an entry again from the same inputs.

        The last bits of a real model's entry may then change."""
        return self.reach > 0 or (self.proposes == "steps" and self.kind.hidden == "none")

    def choice_of(self, draft: int) -> tuple[str, dict[str, int]] | None:
        """Return the channel and the key fields of the choice that became draft 1, 2, ..; None for a lookup.

        A choice of an extend was made in the round before.
        """
        first = int(self.kind.proposes_at_extend)
        if self.proposes == "lookup":
            return None
        if self.proposes == "block":
            return "draft.block.proposal", {"row": draft}
        if self.proposes == "chain" or draft == first:
            return "extend.proposal", {"layer": draft - 1}
        return "draft.step.proposal", {"step": draft - first}

    def graphs(self, drafts: bool) -> int:
        """Return how many graphs there are of one size and width; `drafts`: rounds of that width have drafts."""
        return 1 + int(drafts and self.proposes in ("steps", "block")) + self.extend_launches

    def forwards(self, drafts: int) -> int:
        """Return the draft steps of a round: one a proposal, less that which the extend before gave."""
        return max(drafts - int(self.kind.proposes_at_extend), 0) if self.proposes == "steps" else 0

    def launched(self, width: int) -> int:
        """Return the draft steps that a launch of a runtime of this verify width runs."""
        return self.forwards(self.depth(width))

    def depth(self, width: int) -> int:
        """Return the most drafts of a launch of this verify width; of trees the most levels (S-ADAPT-5)."""
        if not self.tree:
            return width - 1
        return max((steps for steps in self.steps if self.tree.rows(steps) + 1 == width), default=0)

    def entries(self, drafts: int) -> int:
        """Return how many columns n, n+1, .. of the page table the draft launch of a round writes.

        Each column is a position, except for a tree, where `drafts` is its depth.
        """
        if self.tree and self.proposes == "steps":
            return self.tree.entries(drafts)
        return drafts + 1 if self.proposes == "block" and drafts else self.forwards(drafts)


def form_of(
    draft: Draft, needs: DraftNeeds | None = None, tree: Tree | None = None, steps: tuple[int, ...] = ()
) -> Form:
    """Return the form of a draft; `needs` by the reference, which alone knows the layers of a real draft.

    With a `tree` the `steps` matter that may be in force.
    """
    real = isinstance(draft, CheckpointDraft)
    layers = needs.num_layers if real and needs else getattr(draft, "layers", 1)
    return Form(kind_of(draft), layers, tree, steps if tree else ())
