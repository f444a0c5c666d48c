"""Scenarios of checkpoints for tests: those of files, with the models exchanged."""

from collections.abc import Sequence
from pathlib import Path

from draftproof.harness.checkpoint_scenarios import RealDraft, RealTarget, one_draft
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.fit import fitted
from draftproof.properties.values.drafts import Algorithm, KvCacheDtype
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from tests.named import named

NOT_GREEDY = ("sampling", "drawn-drafts", "penalties", "grammars", "logprobs", "prompt-logprobs")
GREEDY = Limits(models=("checkpoint",), features=tuple(name for name in FEATURES_BY_NAME if name not in NOT_GREEDY))


def real(
    path: Path,
    names: Sequence[str],
    draft: Algorithm | RealDraft = "eagle",
    limits: Limits = GREEDY,
    *,
    kv_cache_dtype: KvCacheDtype = "auto",
) -> list[Scenario]:
    """Return the named scenarios with the checkpoint in `path` and one draft, without variants.

    A draft that has no folder of its own goes by its name. On a hybrid both ways to commit take turns, from "snapshot"
    on. They are fitted to `limits`, by default to greedy requests.
    """
    chosen = one_draft(path, draft, None, 0) if isinstance(draft, str) else draft
    target = RealTarget(path, [chosen], kv_cache_dtype)
    made = [target.made(named(name), chosen, turn, turn, "none") for turn, name in enumerate(names)]
    return fitted(made, limits)
