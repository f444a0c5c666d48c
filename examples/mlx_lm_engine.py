"""Check an engine that is a Python generator: `speculative_generate_step` of mlx-lm, down to its caches.

    pip install mlx-lm                        # on Linux with 'mlx[cpu]'
    PYTHONPATH=examples draftproof check --subject mlx_lm_engine:MlxLm --python ENV/bin/python \
        --model TARGET --draft standalone --draft-model SMALL

The loop is left as it is: what it runs is seen by a model in the target's place. Seen on mlx-lm 0.32.2, which does not
know the `rope_parameters` of a Llama (docs/found.md), so that `load` hands them on by the names that it knows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

try:
    import mlx.core as mx
    from mlx_lm.generate import speculative_generate_step
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model
except ImportError as error:
    sys.exit(f"{error}: this example is about mlx-lm (pip install mlx-lm, on Linux with 'mlx[cpu]')")

from draftproof.subject import Key, Limits, Observation, Scenario, Script, Subject, Trace

CHANNELS = "accept.correct_len accept.emitted commit.kv commit.length propose.tokens round.drafts verify.choice"
CHANNELS += " verify.ids"


class Pass(NamedTuple):
    """What the target was fed, the length of its cache before, and the entries that the cache had got since."""

    ids: tuple[int, ...]
    logits: mx.array
    length: int
    entries: dict[tuple[int, int], np.ndarray]


class Seen:
    """The target, which keeps its passes: in a round it is fed the pending token and the drafts."""

    def __init__(self, model: Any) -> None:
        self.model, self.layers, self.passes = model, model.layers, list[Pass]()

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        since = self.passes[-1].length if self.passes else 0
        length, entries = cache[0].offset, entries_of(cache, since)
        logits = self.model(tokens, cache=cache)
        self.passes.append(Pass(tuple(tokens[0].tolist()), logits[0], length, entries))
        return logits


class MlxLm(Subject):
    """One request after the other, in a loop that ends where its last token is taken."""

    name = "mlx-lm"
    packages = ("mlx-lm", "mlx")
    requires = ("mlx_lm",)
    limits = Limits(
        models=("checkpoint",),
        architectures=("LlamaForCausalLM",),
        drafts=("standalone",),
        dtypes=("float32",),
        arrivals="serial",
        steering="none",
        first_drafts="with prompt",
        finish="token",
        variants=(),
    )

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset(CHANNELS.split())

    def run(self, scenario: Scenario, script: Script) -> Trace:
        said: list[Observation] = []
        for index, (request, asked) in enumerate(zip(scenario.requests, script.requests, strict=True)):
            most = min(request.budget, scenario.memory.max_len - len(request.prompt))
            said += decoded(scenario, index, request.prompt, most, asked.stop)
        return Trace(self.name, self.channels(scenario), tuple(said))


def decoded(
    scenario: Scenario, index: int, prompt: tuple[int, ...], most: int, stop: tuple[int, ...]
) -> Iterator[Observation]:
    """Decode one request, and yield what is seen of its rounds."""
    target, draft = Seen(load(scenario.model.path)), load(scenario.draft.path)
    caches = make_prompt_cache(target.model) + make_prompt_cache(draft)
    steps = speculative_generate_step(
        mx.array(prompt), target, draft, num_draft_tokens=scenario.steps, max_tokens=most, prompt_cache=caches
    )
    rounds: dict[int, list[int]] = {}
    for token, *_ in steps:
        rounds.setdefault(len(target.passes) - 1, []).append(token)
        if token in stop:
            break
    steps.close()  # which takes back what was rejected in the last round
    mine, ends = caches[: len(target.layers)], [*target.passes[1:], None]
    for number, (at, emitted) in enumerate(rounds.items()):
        key, ran, after = Key(index, number), target.passes[at], ends[at]
        choices = [choice(row) for row in ran.logits[-len(ran.ids) :]]
        right = [draft == token for draft, (token, _) in zip(ran.ids[1:], choices, strict=False)]
        told = {"accept.emitted": tuple(emitted), "commit.length": after.length if after else mine[0].offset}
        if len(ran.ids) > 1 or number:
            told |= dict.fromkeys(("propose.tokens", "round.drafts"), ran.ids[1:])
            told |= {"accept.correct_len": min([*right, False].index(False), len(emitted))}
        yield from (Observation(channel, key, value) for channel, value in told.items())
        for row, (token, value) in enumerate(zip(ran.ids, choices, strict=True)):
            yield Observation("verify.choice", key._replace(row=row), value)
            yield Observation("verify.ids", key._replace(row=row), token)
        entries = after.entries if after else entries_of(mine, ran.length)
        if not number:  # the prompt's own passes
            entries = {
                **{place: one for early in target.passes[: at + 1] for place, one in early.entries.items()},
                **entries,
            }
        for (layer, position), entry in entries.items():
            yield Observation("commit.kv", key._replace(layer=layer, row=position), entry)


def choice(row: mx.array) -> tuple[int, float]:
    """Return the best token of logits [V], and by how much it is the best."""
    second, best = np.sort(np.array(row, dtype=np.float64))[-2:]
    return int(mx.argmax(row)), float(best - second)


def entries_of(cache: Any, since: int) -> dict[tuple[int, int], np.ndarray]:
    """Return keys and values of each (layer, position) from position `since` on, as one array, keys first."""
    held = {}
    for layer, one in enumerate(cache):
        for position in range(since, one.offset):
            both = [np.array(part[0, :, position], dtype=np.float64).reshape(-1) for part in (one.keys, one.values)]
            held[layer, position] = np.concatenate(both)
            held[layer, position].flags.writeable = False
    return held


@cache
def load(path: str) -> Any:
    """Return a checkpoint as mlx-lm reads it, with the rotary parameters where it looks for them in a Llama."""
    config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
    rope = config.get("rope_parameters") or {}
    given = {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
    if rope.get("rope_type", "default") != "default":
        given |= {"rope_scaling": rope}
    return load_model(Path(path), model_config=given)[0]
