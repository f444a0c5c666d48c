"""What the reference remembers from one scenario to the next changes nothing (A/A): with it, and computed anew."""

import numpy as np
import pytest

from draftproof.properties.values.penalties import Penalties
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Trace
from draftproof.reference import grammar, penalties, sampling
from draftproof.reference.memo import Memo
from draftproof.reference.run import ReferenceSubject
from draftproof.reference.solve import solve
from tests.named import named

CHOSEN = (
    *("penalized", "grammar", "every_choice", "ends", "logprobs"),
    *("sampled_eagle", "sampled_hybrid_replay", "sampled_hybrid_snapshot", "drawn_drafts", "tree_sampled"),
)
"""Scenarios with penalties, with a grammar, with samples, and with all of them."""
REMEMBERED = ((penalties, "_changed_of_probe"), (grammar, "_allowed_after"), (sampling, "_weights_of_probe"))


def traced(scenario: Scenario) -> Trace:
    return ReferenceSubject().run(scenario, solve(scenario, Memo()))


def test_a_reference_that_remembers_texts_says_what_one_says_that_does_not(monkeypatch: pytest.MonkeyPatch):
    scenarios = list(map(named, CHOSEN))
    # Others came before, and each one itself.
    remembered = [traced(one) for _ in range(2) for one in scenarios][len(scenarios) :]
    for module, name in REMEMBERED:
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)
    monkeypatch.setattr(grammar, "state_of", grammar.state_of.__wrapped__)
    for scenario, before in zip(scenarios, remembered, strict=True):
        anew = traced(scenario)
        assert anew.observations == before.observations
        assert anew.told == before.told


def test_a_remembered_row_is_of_its_logits_text_prompt_and_penalties():
    own, row = Penalties(frequency=3), np.array([5.0, 7.0, 9.0])
    kept = penalties._changed_of_probe(row.tobytes(), (0, 1), 1, own)
    assert not kept.flags.writeable
    more = Penalties(frequency=4)
    others = (row + 1, (0, 1), 1, own), (row, (0, 2), 1, own), (row, (0, 1), 2, own), (row, (0, 1), 1, more)
    for logits, text, prompt, asked in others:
        changed = penalties._changed_of_probe(logits.tobytes(), text, prompt, asked)
        assert changed.tolist() != kept.tolist()
        assert changed.tolist() == penalties._changed(logits, text, prompt, asked, is_real=False).tolist()


def test_remembered_weights_are_of_their_logits_and_sampling_and_nobody_changes_them():
    some, row = Sampling(temperature=1.0, top_k=2), np.array([5.0, 7.0, 9.0]) * (1 << 20)
    kept = sampling.probe_weights(row, some)
    asked_otherwise = [
        Sampling(temperature=4.0, top_k=2),
        Sampling(temperature=1.0, top_k=1),
        Sampling(temperature=1.0, top_k=2, top_p=0.5),
        Sampling(temperature=1.0, top_k=2, min_p=0.9),
    ]
    for logits, asked in ((row[::-1], some), *((row, asked) for asked in asked_otherwise)):
        weights = sampling.probe_weights(logits, asked)
        assert weights != kept
        assert weights == sampling.filtered(sampling.grid_weights(logits, asked), asked)
    before = tuple(kept)
    kept[0] += 1
    assert tuple(sampling.probe_weights(row, some)) == before
