"""Inject mistakes into a live SGLang, one after another in one engine, and write what was found at which place.

    PYTHONPATH=tests/subjects/other python -P tests/mistakes_gpu.py KIND CHECKPOINTS RELEASE ENGINES OUT.json MISTAKE..

KIND is eagle or hybrid. OUT.json has, of each mistake and scenario, the first contract that was not kept and its place,
and the names of all others. "none", which comes first, is the released engine. It fails if "none" is not kept, or if
no scenario shows one of the mistakes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draftproof.harness.checkpoint_scenarios import one_draft, real_scenarios
from draftproof.harness.lockstep import evidence
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.properties.fit import fitted
from draftproof.properties.judge import judge
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.solved import solved
from draftproof.report.text import line

TARGETS = {"eagle": ("llama", "eagle-llama"), "hybrid": ("qwen3-next", "")}
"""kind -> its target among the wide checkpoints, and the head; "" is the target's own MTP layer"""
DRAWN, TAKEN = 24, 2
"""Seeds of whose scenarios the first is drawn, and how many of these are run: those with the fewest tokens."""


def scenarios(kind: str, checkpoints: Path, limits: Limits) -> list[Scenario]:
    """Return what every mistake of a kind is looked for in: with cut prompts, and more rows in a batch than one."""
    target, head = (checkpoints / name if name else None for name in TARGETS[kind])
    assert target is not None
    draft = one_draft(target, "eagle", head, 0, built_in=head is None)
    drawn = [one for seed in range(DRAWN) for one in fitted(real_scenarios(target, [draft], seed, 1), limits)]
    return sorted(filter(_tells, drawn), key=lambda one: sum(request.budget for request in one.requests))[:TAKEN]


def _tells(scenario: Scenario) -> bool:
    is_cut = any(len(request.prompt) > scenario.schedule.chunk for request in scenario.requests)
    return is_cut and scenario.schedule.max_batch > 1


def found(subject: Any, scenario: Scenario, reference: Any) -> dict[str, Any]:
    """Run a scenario, and return the first contract that was not kept, where, and all that were not."""
    began = time.monotonic()
    try:
        judged = judge(evidence(subject, scenario, reference))
    except SubjectCrashedError as error:
        return {"first": "CRASH", "place": str(error), "all": [], "seconds": round(time.monotonic() - began, 1)}
    bad = [name for name, divergence in judged.results.items() if divergence is not None]
    first = judged.first
    told = {"first": "", "place": ""} if first is None else {"first": first.contract, "place": line(first)}
    return {**told, "all": bad, "seconds": round(time.monotonic() - began, 1)}


def missed(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the mistakes that no scenario shows, and "none" if one shows something of the released engine."""
    shown = {one["mistake"] for one in results if one["first"]}
    return [name for name in dict.fromkeys(one["mistake"] for one in results) if (name in shown) == (name == "none")]


def main(kind: str, checkpoints: str, release: str, engines: str, out: str, *mistakes: str) -> int:
    from mistaken_sglang import Mistaken

    subject = Mistaken("none", release=release, engines=engines)
    chosen = scenarios(kind, Path(checkpoints), subject.limits)
    known = [solved(scenario) for scenario in chosen]
    results: list[dict[str, Any]] = []
    for mistake in ("none", *mistakes):
        subject.turn_to(mistake)
        for number, (scenario, solution) in enumerate(zip(chosen, known, strict=True)):
            told = found(subject, scenario, lambda _, solution=solution: solution)
            results.append({"mistake": mistake, "scenario": number, **told})
            print(json.dumps(results[-1]), flush=True)
            Path(out).write_text(json.dumps(results, indent=1))
    for name in missed(results):
        print("the released engine fails" if name == "none" else f"not found: {name}", file=sys.stderr)
    return int(bool(missed(results)))


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of NCCL and ZMQ would keep the process
