"""What an engine keeps between launches: the tensors of its arena, by name."""

from __future__ import annotations

from typing import Any

import torch

from draftproof.engine.cache import pool_shapes
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Draft, Shapes
from draftproof.engine.models.base import Target
from draftproof.engine.penalties import shapes as penalty_shapes
from draftproof.engine.states.checkpoints import checkpoint_shapes
from draftproof.engine.states.replay import Replay
from draftproof.engine.states.snapshot import Snapshot


def memory_shapes(
    target: Target, draft: Any, kind: type[Draft[Any]], config: EngineConfig, commit: type[Replay | Snapshot]
) -> Shapes:
    """Return the tensors for a target and a draft of a kind; `commit` is how rounds commit recurrent states."""
    num_slots, num_rows = (config.pages + 1) * config.page_size, config.num_rows
    entries = kind.entries(draft)
    shapes: Shapes = {
        **pool_shapes("target", target.cache_shape, num_slots),
        **(pool_shapes("draft", entries, num_slots) if entries else {}),
        "page_table": ((num_rows, config.pages_per_row), torch.int64),
        **kind.memory(draft, target, config),
    }
    if config.mrope:
        columns = config.pages_per_row * config.page_size
        shapes["mrope_positions"] = ((num_rows, 3, columns), torch.int64)
    if config.penalized:
        shapes |= penalty_shapes(num_rows, target.vocab)
    if target.state_shape:
        shapes |= commit.shapes(target.state_shape, num_rows, config.most_rows, config.most_width)
        shapes |= checkpoint_shapes(target.state_shape, config.checkpoint_turns * num_rows + config.checkpoint_slots)
    return shapes
