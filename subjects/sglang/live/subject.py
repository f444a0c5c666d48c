"""The subject: scenarios of checkpoints on a released SGLang, observed down to its tensors."""

from __future__ import annotations

from draftproof.properties.values.drafts import CheckpointDraft, algorithm, kind_of
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Trace
from draftproof.subjects.making import YesOrNo, whole
from draftproof.subjects.sglang.live import engine, heads
from draftproof.subjects.sglang.live.driving import SglangDriver

_TOKENS = 4096
_ARCHITECTURES = (
    "LlamaForCausalLM",
    "Qwen3ForCausalLM",
    "MiMoForCausalLM",
    "Glm4MoeForCausalLM",
    "Qwen3NextForCausalLM",
)
"""Targets that were seen to run."""
_ALGORITHMS = {"eagle": "EAGLE", "eagle3": "EAGLE3"}
_HOST = frozenset({"round.rows", "round.table", "accept.emitted", "accept.correct_len", "accept.index", "accept.bonus"})
_ROUNDS = frozenset({"commit.length", "propose.tokens", "round.drafts"})
_STATES = frozenset({"commit.state", "commit.step_index"})
_TARGET = frozenset(f"verify.{name}" for name in ("ids", "positions", "slots", "hidden", "choice")) | {"commit.kv"}


class SglangEngine(Subject):
    """A released SGLang in this process, on a GPU.

    `release` is one that was unpacked in the folder `engines`, or "" for what this Python has installed. `steps` drafts
    are made and verified in every round, on pages of `page_size` tokens; `graphs` "no" and `overlap` "no" turn CUDA
    graphs and overlap scheduling off, `radix` "yes" turns the radix cache on. `kernels` "native" takes norms,
    activations and rotary embedding from SGLang's own code in torch, since its kernels for these take no float32.
    """

    packages = ("sglang", "sglang-kernel", "torch", "triton", "transformers")

    def __init__(
        self,
        release: str = "",
        engines: str = "",
        steps: str = "3",
        page_size: str = "1",
        graphs: YesOrNo = "yes",
        overlap: YesOrNo = "yes",
        radix: YesOrNo = "no",
        kernels: engine.Kernels = "native",
    ) -> None:
        if release:
            engine.find(release, engines)
        self.name = " ".join(("sglang", release)).strip()
        self._steps, size = whole("steps", steps, 1, 16), whole("page_size", page_size, 1, 256)
        self._page_size, self._graphs, self._overlap = size, graphs == "yes", overlap == "yes"
        self._radix, self._kernels = radix == "yes", kernels
        self.limits = Limits(
            models=("checkpoint",),
            architectures=_ARCHITECTURES,
            drafts=("eagle", "eagle3"),
            dtypes=("float32",),
            page_sizes=(size,),
            pages=_TOKENS // size,
            fixed_drafts=self._steps,
            features=("hybrid",),
            max_rows=engine.MAX_ROWS,
            allocation="ahead",
            chunks="own",
            own_prefix_cache=self._radix,
            persistent=True,
            variants=(),
            finish="uncut",
            start_seconds=120.0,
        )
        self._driver: SglangDriver | None = None
        self._spec: engine.SglangSpec | None = None
        self._failed: str | None = None

    def channels(self, scenario: Scenario) -> frozenset[str]:
        assert isinstance(scenario.model, Checkpoint)  # the limits allow no other
        kind = kind_of(scenario.draft)
        tapped = _TARGET | kind.tapped if scenario.taps else frozenset()
        if kind.hidden != "last":
            tapped -= {"verify.hidden"}  # what the target hands over is not its last state
        tapped |= {"round.cached"} if self._radix else frozenset()
        if not engine.is_hybrid(scenario.model.path):
            return _HOST | _ROUNDS | tapped
        # SGLang has snapshots, whatever a scenario says; the definition has rows of them where the scenario has.
        rows = {"commit.intermediate"} if scenario.states.commit == "snapshot" else frozenset()
        return _HOST | _ROUNDS | _STATES | rows | tapped

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Serve the scenario on the engine of this process, which is started for the first one."""
        spec = self._spec_of(scenario)
        if self._driver is None:
            self._driver, self._spec = self._started(spec), spec
        if spec != self._spec:
            raise engine.SglangStartError("a second engine in one process: expected scenarios of one model and draft")
        channels = self.channels(scenario)
        seen = self._driver.run(scenario, script)
        return Trace(self.name, channels, tuple(one for one in seen if one.channel in channels))

    def _started(self, spec: engine.SglangSpec) -> SglangDriver:
        """Return an engine. One that failed is not tried again: what it left in this process would hide why."""
        if self._failed is not None:
            raise engine.SglangStartError(f"SGLang did not start before: {self._failed}")
        try:
            return SglangDriver(spec)
        except Exception as error:
            self._failed = f"{type(error).__name__}: {error}"
            raise

    def _spec_of(self, scenario: Scenario) -> engine.SglangSpec:
        model, draft = scenario.model, scenario.draft
        assert isinstance(model, Checkpoint)
        assert isinstance(draft, CheckpointDraft)
        kind = algorithm(draft)
        if self._radix and engine.is_hybrid(model.path):
            raise engine.SglangStartError("the radix cache of a hybrid is not driven: expected --set radix=no")
        return engine.SglangSpec(
            model=model.path,
            dtype=model.dtype,
            algorithm=_ALGORITHMS[kind],
            draft="" if draft.built_in else heads.published(draft.path, kind),
            steps=self._steps,
            page_size=self._page_size,
            tokens=_TOKENS,
            graphs=self._graphs,
            overlap=self._overlap,
            radix=self._radix,
            kernels=self._kernels,
        )
