"""Every contract notices one wrong, missing or surplus value in every channel that it declares, and minds no other.

Generic over the registries: a new contract is covered when it is registered, a new draft when it has a scenario.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace as of_runs
from itertools import chain, islice
from typing import Any, get_args

import numpy as np
import pytest
from msgspec.structs import astuple, replace

from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL, CONTRACTS_BY_NAME
from draftproof.properties.evidence.comparison import may_leave_out
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import DRAFT_KINDS, tapped
from draftproof.properties.values.observed import Datum, Observed, numbers
from draftproof.properties.values.scenario import States
from draftproof.properties.values.trace import Observation, Trace
from tests.named import named
from tests.properties.evidence import (
    BESIDE_TREE,
    CAPTURED,
    ENDED,
    MATCHES,
    MATCHES_BESIDE_TREE,
    OF_DRAFTS,
    OF_ENGINE,
    SCENARIOS,
    STATIC,
    TREE,
    by_engine,
    evidence,
    evidence_of,
    mixed_too,
    overlapped_too,
    ranked,
    tensor_ranked,
    with_observations,
)

NAMES = [contract.name for contract in ALL]
WHOLE = {one.name: channels for one in ALL if (channels := sorted(one.needs - one.partial))}
# What follows from the draft alone, for every draft; the rest is the same whoever proposes.
SHARED = ("config.draft", "propose.tokens", "graph.replay", "graph.work", "commit.written")
OWN = {kind.name: (*kind.tapped, *SHARED) for kind in DRAFT_KINDS}
_OF_TREES = ("verify.ids", "verify.positions", "verify.slots", "verify.choice", "round.drafts", "commit.kv")
_OF_TREES += ("accept.index", "accept.correct_len", "accept.bonus", "accept.emitted")
OWN["tree"] = (*tapped(TREE.draft, is_tree=True), *SHARED, *_OF_TREES)
OWN["tree of matches"] = (*tapped(MATCHES.draft, is_tree=True), *_OF_TREES)
_STATES = {
    commit: replace(TREE, model=STATIC.model, states=States(commit=commit, checkpoint=2))
    for commit in ("snapshot", "replay")
}
_OF_STATES = ("commit.step_index", "commit.state", "commit.checkpoint", "graph.work", "commit.written")
OWN["snapshot"] = (*_OF_STATES, "commit.intermediate")
OWN["replay"] = (*_OF_STATES, "commit.pending", "commit.base")
SCENARIO_OF = {**OF_DRAFTS, "tree": TREE, "tree of matches": MATCHES, **_STATES}
VARIANT = "variant."


def compared_with_itself(variant: str, channel: str) -> Evidence:
    """Evidence with a run in place of its variant's: that those agree is said by test_the_unchanged_traces_pass."""
    of = evidence_of(channel)
    return of_runs(of, scenario=replace(of.scenario, variant=variant), varied=of.subject)


def evidence_for(contract: Contract, channel: str = "") -> Evidence:
    """Evidence that a contract applies to, with something on the channel; without one, of a variant that was run."""
    is_changed, channel = bool(channel), channel or min(contract.needs)
    if contract.name == "variant.chain_as_tree":
        return evidence("chain_as_tree", MATCHES_BESIDE_TREE if channel == "propose.match" else BESIDE_TREE)
    if contract.name.startswith(VARIANT) and is_changed:
        return compared_with_itself(contract.name.removeprefix(VARIANT), channel)
    if contract.name == "variant.unmixed":
        return evidence("unmixed", mixed_too(evidence_of(channel).scenario))
    if contract.name == "variant.unoverlapped":
        return evidence("unoverlapped", overlapped_too(evidence_of(channel).scenario))
    if contract.name.startswith(VARIANT):
        return evidence(contract.name.removeprefix(VARIANT), evidence_of(channel).scenario)  # type: ignore[arg-type]
    if contract.name == "output.ends":
        # A token that is changed shows in a text that a stop ends.
        return by_engine(ENDED)
    if contract.name == "rank.idle":
        # What a rank with requests writes is its own affair.
        return ranked(0, 0, 0, 0)[1]
    if contract.name == "rank.collectives":
        return evidence_of(channel)
    if contract.name == "launch.captures":
        return by_engine(CAPTURED)
    if contract.name == "output.refused":
        return by_engine(named("refused"))
    if contract.name.startswith("tensor."):
        return tensor_ranked()
    known = chain((evidence(scenario=scenario) for scenario in SCENARIOS), map(by_engine, OF_ENGINE.values()))
    return next(of for of in known if contract.applies(of) and of.subject.channel(channel))


def altered(value: Datum, channel: str) -> Iterator[Datum]:
    """The value with one number one too high, far too high, or one bit flipped; of structs each field."""
    if isinstance(value, bytes):
        yield bytes([value[0] ^ 1]) + value[1:]
        yield value[:-1] + bytes([value[-1] ^ 128])
    elif isinstance(value, np.ndarray):
        yield value + 1
    elif value == ():
        item = get_args(CHANNELS[channel].value)[0]
        yield (item(1, 1_000_000),) if issubclass(item, Observed) else (1, 1_000_000)
    else:
        found = numbers(value)
        for at in range(min(len(found), 6)):
            for more in (1,) if isinstance(found[at], float) else (1, 10_000):
                yield rebuilt(value, iter((*found[:at], found[at] + more, *found[at + 1 :])))


def rebuilt(value: Any, parts: Iterator[int | float]) -> Any:
    """The value with other numbers in their places."""
    if isinstance(value, str):
        return value
    if isinstance(value, Observed):
        return type(value)(*(rebuilt(part, parts) for part in astuple(value)))
    return tuple(rebuilt(part, parts) for part in value) if isinstance(value, tuple) else next(parts)


def mutants(of: Evidence, channel: str) -> Iterator[Evidence]:
    """Evidence with one value of the channel changed: a few places spread over the trace, each in every way."""
    places = [at for at, observation in enumerate(of.subject.observations) if observation.channel == channel]
    for at in places[:: max(1, len(places) // 4)]:
        one = of.subject.observations[at]
        for value in altered(one.value, channel):
            yield replaced(of, at, (one._replace(value=value),))


def widely_mutated(of: Evidence, channel: str) -> Iterator[Evidence]:
    """Evidence with every second or third value of the channel changed in one way: whoever looks at it notices."""
    observations = of.subject.observations
    places = [at for at, one in enumerate(observations) if one.channel == channel]
    ways = {at: [*altered(observations[at].value, channel)] for at in places}
    for way in range(max(map(len, ways.values()), default=0)):
        changed = {at: ways[at][way] for at in places[:: 2 + way % 2] if way < len(ways[at])}
        others = (one._replace(value=changed[at]) if at in changed else one for at, one in enumerate(observations))
        yield with_observations(of, others)


def replaced(of: Evidence, at: int, by: tuple[Observation, ...]) -> Evidence:
    """The evidence with other observations of the same channel in place of one.

    The index of the other channels is the same: to make it anew takes as long as many contracts.
    """
    observations, index = of.subject.observations, of.subject.index
    changed = with_observations(of, (*observations[:at], *by, *observations[at + 1 :]))
    channel, key, _ = observations[at]
    old = index[channel].items()
    own = dict(pair for one in old for pair in ([(new.key, new.value) for new in by] if one[0] == key else [one]))
    vars(changed.subject)["index"] = {**index, channel: own}
    return changed


def test_the_index_of_changed_evidence_is_that_of_its_observations() -> None:
    of = evidence(scenario=SCENARIOS[0])
    for at in (0, len(of.subject.observations) // 2, len(of.subject.observations) - 1):
        one = of.subject.observations[at]
        other = one._replace(key=one.key._replace(round=77))
        for by in ((), (other,), (one, other)):
            changed = replaced(of, at, by).subject
            assert changed.index == Trace(changed.subject, changed.channels, changed.observations).index
            assert changed.index != of.subject.index


def fails(contract: Contract, of: Evidence) -> bool:
    return next(iter(contract.check(of)), None) is not None


def is_minded(of: Evidence, channel: str) -> bool:
    """Return whether any contract fails, as `judge` says of all of them; those of the channel are asked first."""
    ordered = sorted(ALL, key=lambda contract: channel not in contract.needs)
    return any(contract.applies(of) and fails(contract, of) for contract in ordered)


def test_the_unchanged_traces_pass() -> None:
    for contract in ALL:
        of = evidence_for(contract)
        assert contract.applies(of), contract.name
        assert list(contract.check(of)) == [], contract.name


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_value_fails(name: str) -> None:
    contract = CONTRACTS_BY_NAME[name]
    for channel in sorted(contract.needs):
        of = evidence_for(contract, channel)
        assert of.subject.channel(channel), f"nothing was reported on {channel}"
        noticed = filter(None, map(contract.check, mutants(of, channel)))
        # A run and its variant are compared alike in every channel: there one change says as much as sixty.
        found = [*chain.from_iterable(islice(noticed, 1) if name.startswith(VARIANT) else noticed)]
        assert found, f"no change of {channel} was noticed"
        assert {divergence.contract for divergence in found} == {contract.name}, channel
        declared = contract.needs | contract.reads | contract.also
        assert all(divergence.channel in declared for divergence in found), channel


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_only_contracts_that_look_at_a_channel_mind_it(channel: str) -> None:
    for mutant in widely_mutated(evidence_of(channel), channel):
        for contract in ALL:
            if channel not in contract.needs | contract.reads | contract.also and contract.applies(mutant):
                assert not fails(contract, mutant), contract.name


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_every_channel_has_a_contract_that_minds_every_change(channel: str) -> None:
    of = evidence_of(channel)
    for mutant in mutants(of, channel):
        changed = [a for a, b in zip(mutant.subject.observations, of.subject.observations, strict=True) if a != b]
        assert is_minded(mutant, channel), f"nobody minds {changed}"


@pytest.mark.parametrize("draft", OWN)
def test_every_change_of_what_any_draft_reports_is_minded(draft: str) -> None:
    of = evidence(scenario=SCENARIO_OF[draft])
    assert judge(of).passed
    for channel in sorted({*OWN[draft]}):
        assert of.subject.channel(channel), channel
        for mutant in mutants(of, channel):
            changed = [a for a, b in zip(mutant.subject.observations, of.subject.observations, strict=True) if a != b]
            assert is_minded(mutant, channel), f"nobody minds {changed}"


@pytest.mark.parametrize("draft", OWN)
def test_whatever_any_draft_leaves_out_is_missed(draft: str) -> None:
    of = evidence(scenario=SCENARIO_OF[draft])
    for channel in sorted({*OWN[draft]}):
        places = [
            at
            for at, one in enumerate(of.subject.observations)
            if one.channel == channel and not (channel.startswith("extend.") and may_leave_out(of.script, one.key))
        ]
        for at in (places[0], places[len(places) // 2], places[-1]):
            assert is_minded(replaced(of, at, ()), channel), of.subject.observations[at]


@pytest.mark.parametrize("name", WHOLE)
def test_a_missing_value_fails(name: str) -> None:
    contract = CONTRACTS_BY_NAME[name]
    for channel in WHOLE[name]:
        of = evidence_for(contract, channel)
        places = [at for at, observation in enumerate(of.subject.observations) if observation.channel == channel]
        for at in (places[0], places[len(places) // 2], places[-1]):
            assert fails(contract, replaced(of, at, ())), of.subject.observations[at]


def moved(of: Evidence, channel: str, change: Callable[[int], int]) -> Evidence:
    """One observation of the channel again under a key that nothing has."""
    at = next(at for at, observation in enumerate(of.subject.observations) if observation.channel == channel)
    one = of.subject.observations[at]
    return replaced(of, at, (one, one._replace(key=one.key._replace(round=change(one.key.round)))))


@pytest.mark.parametrize("name", WHOLE)
def test_a_surplus_value_fails(name: str) -> None:
    contract = CONTRACTS_BY_NAME[name]
    for channel in WHOLE[name]:
        assert fails(contract, moved(evidence_for(contract, channel), channel, lambda _: 77)), channel
