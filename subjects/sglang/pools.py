"""For how many verify rows a release allocates intermediate states, when step counts may change.

`R` rows of a launch, `W` verify width, `A` allocated steps.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from draftproof.engine.models.base import StateShape
from draftproof.engine.parts import EngineParts
from draftproof.engine.states.checkpoints import Pools, Shapes
from draftproof.engine.states.snapshot import Snapshot
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.making import SubjectNameError
from draftproof.subjects.sglang.bare import StubAttributes, make_without_init
from draftproof.subjects.sglang.release import SglangRelease
from draftproof.subjects.sglang.worker import Place, WorkerSubject, on_probes

POLICY: Place = ("speculative.adaptive_spec_params", "AdaptiveSpeculativeParams")
CONFIGURATOR: Place = ("mem_cache.kv_cache_configurator", "KVCacheConfigurator")
MIXIN: Place = ("model_executor.model_runner_kv_cache_mixin", "ModelRunnerKVCacheMixin")
_REQUESTS = {"max_num_reqs": 1}


@dataclass(frozen=True)
class Maker:
    """The code that makes a pool: its method and arguments, and the class `pool` that it calls.

    `module` has that class if the maker's own module does not. `allowed` is a function that refuses arguments which do
    not go with this memory.
    """

    place: Place
    method: str
    arguments: Mapping[str, int]
    pool: str
    module: str = ""
    allowed: Place | None = None


MAKERS: dict[str, tuple[Maker, ...]] = {
    "plain": (
        Maker(
            CONFIGURATOR, "_build_hybrid_req_pool", {**_REQUESTS, "extra_max_context_len": 0}, "HybridReqToTokenPool"
        ),
        Maker(MIXIN, "_init_pools", {}, "HybridReqToTokenPool"),
    ),
    "unified": (
        Maker(
            CONFIGURATOR,
            "_init_unified_mamba_pools",
            {**_REQUESTS, "max_total_num_tokens": 1},
            "init_unified_mamba_pools",
            "mem_cache.unified_memory_pool",
            ("arg_groups.kv_cache_hook", "handle_unified_memory_pool"),
        ),
    ),
}
"""The makers of a server's pools, the newer ones first; "unified" memory is used with --enable-unified-memory."""
_ARGUMENTS: Place = ("arg_groups.overrides", "max_speculative_num_draft_tokens")


class _SeenError(DraftproofError):
    """Ends what made a pool, as soon as it is asked for."""


class AllocatedStates(Snapshot):
    """Snapshots with intermediate states allocated as a release does; verify writes as many rows as it has."""

    allocated: ClassVar[int]
    most_width: ClassVar[int] = 0

    @classmethod
    def shapes(cls, shape: StateShape, slots: int, rows: int, steps: int) -> Shapes:  # type: ignore[override]
        """Return the arena entries for A steps."""
        cls.most_width = steps
        return Snapshot.shapes(shape, slots, rows, cls.allocated)

    def __init__(self, pools: Pools, turns: int = 1) -> None:
        super().__init__(pools, turns)
        if self.allocated >= self.most_width:
            return
        for name in ("intermediate_conv", "intermediate_ssm"):
            pool = getattr(self, name)
            shape = (*pool.shape[:2], self.most_width, *pool.shape[3:])
            setattr(self, name, pool.as_strided(shape, pool.stride()))


class PoolSteps(WorkerSubject):
    """The steps that pools of recurrent states are allocated for; `memory` is "plain" or "unified"."""

    name = "sglang pools"
    limits = on_probes()
    own = frozenset({"commit.intermediate"})

    def __init__(self, wheel: str, memory: str = "plain") -> None:
        if memory not in MAKERS:
            raise SubjectNameError(f"invalid setting memory={memory!r}: expected {' or '.join(MAKERS)}")
        source = SglangRelease.open(wheel)
        found = [maker for maker in MAKERS[memory] if hasattr(source.find(*maker.place), maker.method)]
        self._maker = found[0] if found else MAKERS[memory][0]
        allowed = self._maker.allowed
        self.needs = (POLICY, self._maker.place) if allowed is None else (POLICY, self._maker.place, allowed)
        super().__init__(wheel)
        if not found:
            self._found[self._maker.place] = None
        if allowed is not None and not self._allows(self._found[allowed]):
            self._found[allowed] = None

    def _allows(self, check: Any) -> bool:
        """Return whether a server of the release takes an EAGLE draft with this memory."""
        if check is None:
            return False
        module: Any = sys.modules[check.__module__]
        module.resolving_view = module.resolved_view = lambda given: given
        module.model_config_of = lambda _: StubAttributes(is_hybrid_swa=True)
        module.use_mla_backend = lambda _: False
        # A backend that is in all of the lists goes with it.
        lists = [value for value in vars(module).values() if isinstance(value, frozenset)]
        module.attention_backends_of = lambda _: sorted(frozenset.intersection(*lists) if lists else ())[:1] * 2
        self.source.settings.update(
            enable_unified_memory=True,
            disaggregation_mode="null",
            speculative_algorithm="EAGLE",
            speculative_eagle_topk=1,
        )
        try:
            check(self.source.server_args())
        except AssertionError:
            return False
        return True

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return states allocated as the release does for the scenario's controller."""
        if scenario.adaptive_steps is None:
            return EngineParts()
        steps = self._allocated(scenario.adaptive_steps)
        return EngineParts(snapshot=type("AllocatedStates", (AllocatedStates,), {"allocated": steps}))

    def _allocated(self, adaptive: Adaptive | AdaptiveByBatch) -> int:
        """Return A, as the maker of a server's pools gets it with this controller."""
        lists = [adaptive] if isinstance(adaptive, Adaptive) else adaptive.slots
        steps = sorted({adaptive.initial, *(n for one in lists for n in one.candidates)} - {0})
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "adaptive.json")
            file.write_text(json.dumps({"1": {"candidate_steps": steps}, "candidate_steps": steps}), encoding="utf-8")
            self.source.settings.update(
                page_size=1,
                speculative_algorithm="EAGLE",
                speculative_eagle_topk=1,
                speculative_num_steps=adaptive.initial,
                speculative_num_draft_tokens=adaptive.initial + 1,
                speculative_adaptive=True,
                speculative_adaptive_config=str(file),
            )
            return self._asked()

    def _asked(self) -> int:
        maker_of, kind = self._maker, self._found[self._maker.place]
        assert kind is not None
        module = (
            self.source.modules.module(f"sglang.srt.{maker_of.module}")
            if maker_of.module
            else sys.modules[kind.__module__]
        )
        told: dict[str, Any] = {}

        def pool(**options: Any) -> None:
            told.update(options)
            raise _SeenError

        kind_of_args = self.source.find("server_args", "ServerArgs")
        is_told = hasattr(kind_of_args, "max_speculative_num_draft_tokens")
        args: Any = make_without_init(kind_of_args, **self.source.settings) if is_told else self.source.server_args()
        if (published := self.source.find(*_ARGUMENTS)) is not None:
            sys.modules[published.__module__].resolving_view = lambda given: given  # type: ignore[attr-defined]
            self.source.settings["max_speculative_num_draft_tokens"] = published(args)
        setattr(module, maker_of.pool, pool)
        hybrid = StubAttributes(mamba2_cache_params=StubAttributes(layers=()), full_attention_layer_ids=())
        maker = make_without_init(
            kind,
            server_args=args,
            max_running_requests=1,
            req_to_token_pool=None,
            mambaish_config=hybrid,
            page_size=1,
            model_config=StubAttributes(context_len=0),
        )
        with contextlib.suppress(_SeenError):
            getattr(maker, maker_of.method)(**maker_of.arguments)
        return int(told["speculative_num_draft_tokens"])
