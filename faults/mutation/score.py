"""The mutation score: which sampled mutants the contracts notice, and what is to be said of those that survive."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from draftproof.faults.catalogue import read_sources
from draftproof.faults.matrix import MadeWith, versions
from draftproof.faults.mutation.mutant import Mutant, MutatedLine, diff
from draftproof.faults.orders import Batch, Task, TaskResult, is_twin, twins_of
from draftproof.faults.patched_sources import Copy, write_copy
from draftproof.faults.patching import PatchError, parse
from draftproof.faults.served import ForkServer, Serve
from draftproof.faults.trial import Expectation, FaultOutcome
from draftproof.properties.kernels.table import OPS
from draftproof.properties.lib.base import Value
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.strategies.version import STRATEGIES_VERSION
from draftproof.properties.values.drafts import drafts_of
from draftproof.properties.values.scenario import Scenario

TRIAGE = Path(__file__).with_name("triage.toml")
_DEADLINE = 30.0
MUTANTS_AT_ONCE = 2
_KERNEL_CALLS = 40
_OTHER = re.compile(r"other=[^,)]*")
_DEFINED = re.compile(r"^def (\w+)\(", re.MULTILINE)


class Fate(StrEnum):
    """What became of a mutant. `unreached`: it survived, and nothing ever ran it."""

    CONTRACT = "contract"
    CRASHED = "crashed"
    HUNG = "hung"
    SURVIVED = "survived"
    UNREACHED = "unreached"
    EQUIVALENT = "equivalent"
    BROKEN = "broken"


KILLED = (Fate.CONTRACT, Fate.CRASHED, Fate.HUNG)


class JudgedMutant(MutatedLine, frozen=True, kw_only=True):
    """One mutant and its fate; `by` is the contract or the error that noticed it, `why` the argument of a triage.

    `nodes` are the nodes of a cluster that it ran on.
    """

    fate: Fate
    by: str = ""
    why: str = ""
    nodes: tuple[str, ...] = ()


class Score(Value, frozen=True, kw_only=True):
    """The score of those that could be imported as Python.

    `score` is killed / (all - equivalent), null if there are none; `by_contract` of the killed were noticed by a
    contract, the others by a crash or a hang. `strategies` is the version of the scenarios that they met.
    """

    seed: int
    sampled: int
    killed: int
    by_contract: int
    equivalent: int
    score: float | None
    by_kind: dict[str, tuple[int, int]]
    mutants: tuple[JudgedMutant, ...]
    strategies: int = STRATEGIES_VERSION
    versions: tuple[MadeWith, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of a cluster that any mutant ran on, sorted."""
        return tuple(sorted({node for one in self.mutants for node in one.nodes}))

    @property
    def judged(self) -> int:
        """How many mutants could have been noticed."""
        return self.sampled - self.equivalent

    @property
    def quiet_share(self) -> float | None:
        """The share of mutants noticed by a contract, of those that neither crash nor hang; None if all do."""
        quiet = self.judged - self.killed + self.by_contract
        return self.by_contract / quiet if quiet else None


class Phase(Value, frozen=True, kw_only=True):
    """What mutants meet together: scenarios, or with `ops` calls of kernels."""

    name: str
    interpreted: bool = False
    ops: bool = False
    scenarios: tuple[Scenario, ...] = ()


def phases_of(path: str) -> tuple[str, ...]:
    """Names of the phases that a mutant of a file goes through until it is noticed."""
    if path.startswith("kernels/triton"):
        return ("interpreted",)
    if path.startswith("kernels/"):
        others = ("kernels", "probes", "models")
        return others if path.startswith("kernels/eager") else ("interpreted", *others)
    return ("probes", "models") if path.startswith(("engine/models/", "engine/drafts/")) else ("probes",)


def ops_of(path: str, sources: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kernels with code in a file or in files that import from it; all of them if no such file has any."""
    imports = f"from draftproof.{path.removesuffix('.py').replace('/', '.')} import "
    readers = (text for text in sources.values() if imports in text)
    own = {name for text in (sources[path], *readers) for name in _DEFINED.findall(text)}
    return tuple(sorted(own & OPS.keys()) or OPS)


def judge_all(
    mutants: Sequence[Mutant],
    seed: int,
    examples: int,
    models: Sequence[Scenario] = (),
    progress: Callable[[str], None] = lambda _id: None,
    parallel: int = MUTANTS_AT_ONCE,
    serve: Serve | None = None,
    keep: Callable[[Serve], Serve] = lambda serve: serve,
) -> Score:
    """Run every mutant through its phases.

    `models` are scenarios of real checkpoints; `serve` runs batches, if not a fork server of this call; `keep` makes of
    it what also keeps results, and takes those that it has. Raises RuntimeError for errors of our own, and if unmutated
    code does not pass.
    """
    sources = read_sources()
    by_id = {mutant.id: mutant for mutant in mutants}
    fates: dict[str, JudgedMutant] = {}
    phases = (
        Phase(name="interpreted", interpreted=True, ops=True),
        Phase(name="kernels", ops=True),
        Phase(name="probes", scenarios=tuple(generate(seed, examples, drafts_of("all")))),
        Phase(name="models", scenarios=tuple(models)),
    )
    with tempfile.TemporaryDirectory(prefix="draftproof-") as folder, ForkServer() as server:
        clean = write_copy(Path(folder) / "clean", sources)
        tasks = dict(_tasks(mutants, sources, clean, Path(folder), fates))
        for phase in phases:
            wanted = [
                msgspec.structs.replace(task, ops=ops_of(one.path, sources) if phase.ops else ())
                for one in mutants
                if (task := tasks.get(one.id)) and _goes_on(one, fates) and phase.name in phases_of(one.path)
            ]
            if wanted and (phase.ops or phase.scenarios):
                for result in _run(wanted, phase, seed, clean.folder, parallel, keep(serve or server.run)):
                    fates[result.id] = _judged(by_id[result.id], result, fates.get(result.id))
                    progress(result.id)
    return scored(seed, [fates[mutant.id] for mutant in mutants if mutant.id in fates])


def _tasks(
    mutants: Iterable[Mutant], sources: Mapping[str, str], clean: Copy, folder: Path, fates: dict[str, JudgedMutant]
) -> Iterable[tuple[str, Task]]:
    for mutant in mutants:
        try:
            copy = write_copy(folder / mutant.id, sources, parse(diff(mutant, sources)), clean)
        except (PatchError, SyntaxError) as error:
            fates[mutant.id] = _row(mutant, Fate.BROKEN, by=str(error))
            continue
        yield mutant.id, Task(id=mutant.id, folder=copy.folder, hunks=copy.hunks, expected=Expectation())


def _goes_on(mutant: Mutant, fates: Mapping[str, JudgedMutant]) -> bool:
    return mutant.id not in fates or fates[mutant.id].fate in (Fate.SURVIVED, Fate.UNREACHED)


def _run(
    tasks: Sequence[Task], phase: Phase, seed: int, clean: str, parallel: int, serve: Serve
) -> Iterable[TaskResult]:
    batch = Batch(
        seeds=(seed,),
        examples=_KERNEL_CALLS,
        scenarios=(phase.scenarios,),
        tasks=(*tasks, *twins_of(tasks, clean)),
        device="cpu",
        parallel=parallel,
        deadline=_DEADLINE,
        interpreted=phase.interpreted,
    )
    for result in serve(batch):
        if not is_twin(result.id):
            yield result
        elif result.seeds[0].outcome is not FaultOutcome.SURVIVED:
            raise RuntimeError(f"unmutated code does not pass ({phase.name}): {result.seeds[0]}")


_FATES = {
    FaultOutcome.DETECTED: Fate.CONTRACT,
    FaultOutcome.DETECTED_BY_OTHER: Fate.CONTRACT,
    FaultOutcome.CRASHED: Fate.CRASHED,
    FaultOutcome.HUNG: Fate.HUNG,
}


def _judged(mutant: Mutant, result: TaskResult, before: JudgedMutant | None) -> JudgedMutant:
    seed, nodes = result.seeds[0], tuple(sorted({*result.nodes, *(before.nodes if before else ())}))
    if seed.outcome in _FATES:
        by = seed.divergence.contract if seed.divergence else seed.detail
        return _row(mutant, _FATES[seed.outcome], by=by, nodes=nodes)
    reached = not result.inert or (before is not None and before.fate is Fate.SURVIVED)
    return _row(mutant, Fate.SURVIVED if reached else Fate.UNREACHED, nodes=nodes)


def _row(mutant: Mutant, fate: Fate, by: str = "", nodes: tuple[str, ...] = ()) -> JudgedMutant:
    line = {name: getattr(mutant, name) for name in MutatedLine.__struct_fields__}
    return JudgedMutant(**line, fate=fate, by=by, nodes=nodes)


class Triage(Value, frozen=True, kw_only=True):
    """What is known of survivors, as `triage.toml` says it: an argument for each.

    `equivalent` and `left` have the keys of mutants: nothing could tell it from the original, or it is left unnoticed.
    `same` has expressions that are equal in a file (`path | one | other`). `defaults`, `speed` and `masked` have lines
    (`path | before`): nothing could tell any survivor there, for `masked` any that changes no more than what a load
    gives for elements beyond its mask.
    """

    equivalent: dict[str, str] = msgspec.field(default_factory=dict)
    defaults: dict[str, str] = msgspec.field(default_factory=dict)
    same: dict[str, str] = msgspec.field(default_factory=dict)
    speed: dict[str, str] = msgspec.field(default_factory=dict)
    masked: dict[str, str] = msgspec.field(default_factory=dict)
    left: dict[str, str] = msgspec.field(default_factory=dict)

    def why_equivalent(self, one: MutatedLine) -> str:
        """Return why nothing could tell a survivor from the original, empty if something could."""
        if why := self.equivalent.get(one.key) or (self.speed | self.defaults).get(one.place):
            return why
        if _OTHER.sub("", one.before) == _OTHER.sub("", one.after):
            return self.masked.get(one.place, "")
        return next((why for key, why in self.same.items() if _takes_for(one, *key.split(" | "))), "")


def _takes_for(one: MutatedLine, path: str, this: str, other: str) -> bool:
    """Return whether a mutant does no more than take one expression of a file for another."""
    named = re.compile(rf"(?<![\w.]){re.escape(other)}(?!\w)")
    return one.path == path and named.sub(lambda _: this, one.before) == named.sub(lambda _: this, one.after)


def triaged() -> Triage:
    """Return what is known of survivors."""
    return msgspec.convert(tomllib.loads(TRIAGE.read_text(encoding="utf-8")), Triage)


def scored(seed: int, judged: Sequence[JudgedMutant], triage: Triage | None = None) -> Score:
    """Return the score, with survivors taken for equivalent where a triage says why."""
    known = triaged() if triage is None else triage
    rows = tuple(_triage(one, known) for one in judged)
    sampled = [one for one in rows if one.fate is not Fate.BROKEN]
    counted = [one for one in sampled if one.fate is not Fate.EQUIVALENT]
    killed = Counter(one.kind for one in counted if one.fate in KILLED)
    kinds = Counter(one.kind for one in counted)
    return Score(
        seed=seed,
        sampled=len(sampled),
        killed=killed.total(),
        by_contract=sum(one.fate is Fate.CONTRACT for one in counted),
        equivalent=len(sampled) - len(counted),
        score=killed.total() / len(counted) if counted else None,
        by_kind={kind: (killed[kind], kinds[kind]) for kind in sorted(kinds)},
        mutants=rows,
        versions=versions(),
    )


def _triage(one: JudgedMutant, known: Triage) -> JudgedMutant:
    if one.fate not in (Fate.SURVIVED, Fate.UNREACHED):
        return one
    if why := known.why_equivalent(one):
        return msgspec.structs.replace(one, fate=Fate.EQUIVALENT, why=why)
    return msgspec.structs.replace(one, why=known.left.get(one.key, ""))
