"""The reference's rounds against independent definitions: plain greedy decoding, limits, acceptance, EAGLE entries."""

import itertools
from collections import Counter
from math import lcm

import numpy as np
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import ALGORITHMS, TREE_CHANNELS, algorithm
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, round_plan
from draftproof.properties.values.script import RequestScript, RoundScript
from draftproof.properties.values.trace import Key, Trace
from draftproof.reference.build import build
from draftproof.reference.choose import choose
from draftproof.reference.decode import accept
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.run import ReferenceSubject, run
from draftproof.reference.solve import solve
from tests.reference.draft_rows import TOLD, Told, draft_keys, extend_keys, found
from tests.reference.scenarios import BRIEF, model, request, scenario, scenarios


def test_the_drawn_scenarios_reach_what_matters() -> None:
    """Each joint condition comes up at least five times, or the tests below would check less than they say."""
    times: Counter[str] = Counter()

    @settings(BRIEF, max_examples=150)
    @given(scenarios())
    def draw(made: Scenario) -> None:
        for solved in solve(made).requests:
            for round_ in solved.rounds:
                forced, last = round_.forced is not None, round_ is solved.rounds[-1]
                times["no drafts"] += round_.drafts == 0
                times["several own drafts"] += not forced and round_.drafts > 1
                times[f"own drafts of {algorithm(made.draft)}"] += not forced and round_.drafts > 0
                times["partly accepted"] += 0 < round_.correct_len < round_.drafts
                times["all accepted, more to come"] += 0 < round_.correct_len == round_.drafts and not last
                times["a match behind the mismatch"] += forced and round_.correct_len + 1 < round_.drafts
                times["cut"] += len(round_.emitted) <= round_.correct_len
            times["stopped"] += bool(solved.rounds) and solved.tokens[-1] in solved.stop
            times["ended at once"] += not solved.rounds

    draw()
    assert len(times) == 8 + len(ALGORITHMS)
    assert all(count >= 5 for count in times.values()), times


def greedy(made: Scenario, prompt: tuple[int, ...], count: int) -> list[int]:
    """Plain decoding: one whole pass a token, nothing remembered, ties to the lowest id."""
    target, _ = build(made, Memo(enabled=False))
    tokens = list(prompt)
    for _ in range(count):
        last = target.forward(tuple(tokens)).logits[-1].tolist()
        tokens.append(min(range(len(last)), key=lambda token: (-last[token], token)))
    return tokens[len(prompt) :]


def expected_tokens(made: Scenario, asked: Request) -> tuple[list[int], tuple[int, ...]]:
    """(emitted, stop) by looking at one token after the other."""
    truth = greedy(made, asked.prompt, max(asked.budget, asked.stop_at + 1))
    stop = (truth[asked.stop_at],) if asked.stop_at >= 0 else ()
    emitted: list[int] = []
    for token in truth:
        emitted.append(token)
        full = len(asked.prompt) + len(emitted) == made.memory.max_len
        if token in stop or len(emitted) == asked.budget or full:
            break
    return emitted, stop


def emitted(trace: Trace, index: int) -> list[int]:
    parts = sorted((key.round, value) for key, value in trace.of("accept.emitted", request=index))
    return [token for _, tokens in parts for token in tokens]


@BRIEF
@given(scenarios())
def test_emits_what_plain_greedy_decoding_emits(made: Scenario) -> None:
    script = solve(made)
    trace = run(made, script)
    for index, (asked, solved) in enumerate(zip(made.requests, script.requests, strict=True)):
        tokens, stop = expected_tokens(made, asked)
        assert list(solved.tokens) == tokens
        assert solved.stop == stop
        assert emitted(trace, index) == tokens
        assert sum(len(round_.emitted) for round_ in solved.rounds) == len(tokens) - 1


@BRIEF
@given(scenarios())
def test_a_memo_changes_nothing_and_solving_again_agrees(made: Scenario) -> None:
    shared, without = Memo(), Memo(enabled=False)
    script = solve(made, without)
    assert solve(made) == solve(made, shared) == solve(made, shared) == script
    slow = run(made, script, without)
    assert run(made, script) == run(made, script, shared) == slow
    assert ReferenceSubject().run(made, script) == slow


@BRIEF
@given(scenarios())
def test_rounds_are_what_the_plans_ask_for(made: Scenario) -> None:
    script = solve(made)
    for asked, solved in zip(made.requests, script.requests, strict=True):
        truth = greedy(made, asked.prompt, len(solved.tokens) + made.steps + 1)
        done = 1
        for number, round_ in enumerate(solved.rounds, start=1):
            check_round(made, asked, solved, round_, round_plan(asked, number), truth, done)
            done += len(round_.emitted)
        assert done == len(solved.tokens)


def check_round(
    made: Scenario,
    asked: Request,
    solved: RequestScript,
    round_: RoundScript,
    plan: RoundPlan,
    truth: list[int],
    done: int,
) -> None:
    n = len(asked.prompt) + done - 1
    allowed = max(0, min(plan.num_drafts, made.memory.max_len - 1 - n, asked.budget - done - 1))
    assert round_.context == n
    assert round_.emitted == solved.tokens[done:][: round_.correct_len + 1]
    if plan.num_correct < 0:
        assert round_.drafts == found(made, (*asked.prompt, *truth[:done]), allowed)
        assert round_.forced is None
        return
    assert round_.drafts == allowed
    assert round_.forced is not None
    right = min(plan.num_correct, round_.drafts)
    assert len(round_.forced) == round_.drafts
    assert round_.correct_len == right
    for place, token in enumerate(round_.forced):
        true = truth[done + place]
        if place == right:
            assert token == (true + 1) % made.model.vocab
        elif place == right + 1:
            prefix = (*asked.prompt, *truth[:done], *round_.forced[:place])
            assert token == greedy(made, prefix, 1)[0]
        else:
            assert token == true


@BRIEF
@given(scenarios().map(FEATURES_BY_NAME["disaggregation"].without).map(FEATURES_BY_NAME["overlap"].without))
def test_the_trace_has_exactly_the_rows_of_the_definitions(made: Scenario) -> None:
    script = solve(made)
    trace = run(made, script)
    assert trace.duplicates == ()
    assert {observation.channel for observation in trace.observations} <= trace.channels <= set(CHANNELS)
    assert trace.channels == declared(made)
    told = {name: set(trace.channel(name)) for name in trace.channels}
    wanted: dict[str, set[Key]] = {name: set() for name in trace.channels}
    wanted["config.draft"] = {Key(-1, 0)}
    wanted["config.routing"] = {Key(-1, 0, layer=layer) for layer in range(made.model.layers)}
    for index, (asked, solved) in enumerate(zip(made.requests, script.requests, strict=True)):
        for name, key in request_keys(made, index, asked, solved):
            wanted[name].add(key)
    assert told == wanted


def declared(made: Scenario) -> set[str]:
    """By elimination: what a subject alone can know, and states where there are none or in another form."""
    # Nothing of these scenarios is transferred, or planned ahead: see test_disaggregation.py and test_overlap.py.
    alone = ("round.", "pool.", "graph.", "adaptive_steps.", "total.", "rank.", "disaggregation.", "overlap.")
    # None of these scenarios has a tree: see test_trees.py.
    drafts = set(TREE_CHANNELS).union(*TOLD.values())
    without = {"accept.returned", "config.seen", "config.index_bytes", "commit.written"}
    without |= {name for name in CHANNELS if name.endswith((".slots", ".discarded", ".packed"))}
    if made.model.linear is None:
        without |= {f"commit.{name}" for name in ("step_index", "state", "final", "intermediate")}
    if made.model.linear is None or made.states.commit == "snapshot":
        without |= {"commit.pending", "commit.base", "commit.unfolded"}
    else:
        without.add("commit.intermediate")
    if made.model.linear is None or not made.states.checkpoint:
        without.add("commit.checkpoint")
    if made.model.linear is None or not (made.states.checkpoint and made.schedule.prefix_cache):
        without.add("commit.cached")
    known = {name for name in CHANNELS if name == "round.drafts" or not name.startswith(alone)}
    return (known - without - drafts) | TOLD[algorithm(made.draft)]


def request_keys(made: Scenario, index: int, asked: Request, solved: RequestScript) -> list[tuple[str, Key]]:
    n, last = len(asked.prompt), len(solved.rounds)
    keys = [*window(made, index, 0, range(n), last == 0), ("accept.emitted", Key(index, 0))]
    keys.append(("verify.choice", Key(index, 0, row=0)))
    keys += state_keys(made, index, 0, n, last == 0)
    for number, round_ in enumerate(solved.rounds, start=1):
        keys += draft_keys(made, index, number, round_)
        keys += [
            (f"verify.{name}", Key(index, number, row=row))
            for name in ("ids", "positions", "hidden", "choice")
            for row in range(round_.drafts + 1)
        ]
        keys += [(f"accept.{name}", Key(index, number)) for name in ("correct_len", "index", "bonus", "emitted")]
        keys += window(made, index, number, range(n, n + len(round_.emitted)), number == last)
        n += len(round_.emitted)
        keys += state_keys(made, index, number, n, number == last, round_)
    if made.schedule.prefix_cache and made.states.checkpoint:
        linear = [layer for layer, kind in enumerate(made.model.types) if kind == "linear_attention"]
        size = lcm(made.states.checkpoint, made.memory.page_size)
        keys += [
            ("commit.cached", Key(index, 0, layer=layer, row=at)) for layer in linear for at in range(size, n + 1, size)
        ]
    return keys


def state_keys(
    made: Scenario, index: int, number: int, length: int, ends: bool, round_: RoundScript | None = None
) -> list[tuple[str, Key]]:
    """`length` is that after the round."""
    linear = [layer for layer, kind in enumerate(made.model.types) if kind == "linear_attention"]
    if not linear:
        return []
    replay, every = made.states.commit == "replay", made.states.checkpoint
    names = ["commit.state"] + ["commit.base"] * replay + ["commit.final"] * ends
    if every and length >= every:
        names.append("commit.checkpoint")
    keys = [(name, Key(index, number, layer=layer)) for name in names for layer in linear]
    keys += [("commit.pending", Key(index, number))] * replay
    keys += [("commit.unfolded", Key(index, number))] * (replay and ends)
    if round_ is None:
        return keys
    rows = 0 if replay else round_.drafts + 1
    keys += [
        ("commit.intermediate", Key(index, number, layer=layer, row=row)) for layer in linear for row in range(rows)
    ]
    return [*keys, ("commit.step_index", Key(index, number))]


def window(made: Scenario, index: int, number: int, positions: range, ends: bool) -> list[tuple[str, Key]]:
    keys = [("commit.length", Key(index, number))]
    keys += [
        ("commit.kv", Key(index, number, layer=layer, row=row))
        for layer, kind in enumerate(made.model.types)
        if kind == "full_attention"
        for row in positions
    ]
    return keys if ends else keys + extend_keys(made, index, number, positions)


@BRIEF
@given(scenarios())
def test_values_follow_from_one_pass_over_the_final_sequence(made: Scenario) -> None:
    """All that a request commits equals one long pass over its tokens."""
    made = replace(made, requests=made.requests[:1])
    script = solve(made)
    trace, solved, prompt = run(made, script), script.requests[0], made.requests[0].prompt
    target, _ = build(made, Memo(enabled=False))
    tokens = prompt + solved.tokens
    true = target.forward(tokens[:-1])
    length = len(prompt)
    for number in range(len(solved.rounds) + 1):
        told = Told(trace, number)
        if number:
            length += len(solved.rounds[number - 1].emitted)
            check_verify(made, told, tokens, length - len(solved.rounds[number - 1].emitted), solved.rounds[number - 1])
        assert told("commit.length") == length
        for key, value in trace.of("commit.kv", round=number):
            assert value == true.kv[among(made, "full_attention", key.layer)][key.row].tobytes()
        check_states(made, trace, number, true, length)


def among(made: Scenario, kind: str, layer: int) -> int:
    """Which layer of its kind a layer is."""
    return made.model.types[:layer].count(kind)


def check_states(made: Scenario, trace: Trace, number: int, true: Pass, length: int) -> None:
    """States of a round after which the context has `length` tokens, against those of one pass over all tokens."""

    def after(layer: int, tokens: int) -> bytes:
        return true.states[among(made, "linear_attention", layer)][tokens - 1].tobytes()

    told = Told(trace, number)
    before = length - len(trace.channel("accept.emitted")[Key(0, number)]) if number else length
    every = max(1, made.states.checkpoint)
    for name, tokens in {
        "commit.state": length,
        "commit.final": length,
        "commit.base": before,
        "commit.checkpoint": length - length % every,
    }.items():
        for layer, value in told.rows(name, "layer").items():
            assert value == after(layer, tokens), (name, number)
    for key, value in trace.of("commit.intermediate", round=number):
        if before + key.row < length:
            assert value == after(key.layer, before + key.row + 1)
    for name, value in (("commit.step_index", length - before - 1), ("commit.pending", length - before)):
        assert all(got == value for _, got in trace.of(name, round=number)), name


def check_verify(made: Scenario, told: Told, tokens: tuple[int, ...], n: int, round_: RoundScript) -> None:
    ids, choices = told.rows("verify.ids", "row"), told.rows("verify.choice", "row")
    assert ids[0] == tokens[n]
    assert list(told.rows("verify.positions", "row").values()) == list(range(n, n + round_.drafts + 1))
    own = told("propose.tokens")
    assert tuple(ids.values())[1:] == (own if round_.forced is None else round_.forced)
    assert len(own) == found(made, tokens[: n + 1], round_.drafts)
    a = round_.correct_len
    assert all(ids[i] == choices[i - 1][0] for i in range(1, a + 1))
    assert a == round_.drafts or ids[a + 1] != choices[a][0]
    assert told("accept.correct_len") == a
    assert told("accept.index") == tuple(range(a + 1))
    assert told("accept.bonus") == choices[a][0]
    assert told("accept.emitted") == round_.emitted


@pytest.mark.parametrize("vocab", [2, 3])
def test_accept_by_enumeration(vocab: int) -> None:
    """correct_len is the largest a <= K with d_i = y_{i-1} for all i <= a."""
    for count in range(5):
        for drafts in itertools.product(range(vocab), repeat=count):
            for choices in itertools.product(range(vocab), repeat=count + 1):
                every = [a for a in range(count + 1) if all(drafts[i - 1] == choices[i - 1] for i in range(1, a + 1))]
                assert accept(drafts, choices) == max(every)


def test_choice_is_the_lowest_id_of_the_highest_by_enumeration() -> None:
    for logits in itertools.product((0.0, 1.0, 3.0), repeat=4):
        ranked = sorted(range(4), key=lambda token: (-logits[token], token))
        assert choose(np.array(logits)) == (ranked[0], logits[ranked[0]] - logits[ranked[1]])


@pytest.mark.parametrize(("agreement", "low", "high"), [(256, 1.0, 1.0), (128, 0.4, 0.6), (0, 0.0, 0.05)])
def test_unforced_drafts_are_accepted_as_often_as_the_scenario_says(agreement: int, low: float, high: float) -> None:
    """Of the drafts that were reached, through chains of stand-ins."""
    asked = request(budget=200, rounds=((4, -1),))
    rounds = solve(scenario(asked, max_len=256, of=model(vocab=61, agreement=agreement))).requests[0].rounds
    reached = sum(min(round_.correct_len + 1, round_.drafts) for round_ in rounds)
    assert reached > 150
    assert low <= sum(round_.correct_len for round_ in rounds) / reached <= high


def test_a_round_that_ends_a_request_is_cut_in_emission_and_commit_only() -> None:
    """Stop at emitted token 3 of a round that accepts all of 4 drafts: tokens 1 .. 3 leave, and nothing is extended."""
    of = model(vocab=61)
    truth = greedy(scenario(request(), of=of), tuple(range(1, 6)), 8)
    assert Counter(truth)[truth[3]] == 1
    made = scenario(request(rounds=((4, 4),), stop=3), of=of)
    script = solve(made)
    told = Told(run(made, script), 1)
    assert script.requests[0].tokens == tuple(truth[:4])
    assert script.requests[0].stop == (truth[3],)
    assert told("accept.correct_len") == 4
    assert told("accept.index") == (0, 1, 2, 3, 4)
    assert told("accept.bonus") == truth[5]
    assert told("accept.emitted") == tuple(truth[1:4])
    assert told("commit.length") == 5 + 3
    assert set(told.rows("commit.kv", "row")) == {5, 6, 7}
    assert not told.rows("extend.ids", "row")


@pytest.mark.parametrize(
    ("asked", "max_len", "count"),
    [
        (request(budget=1), 64, 1),
        (request(budget=2, rounds=((4, 4),)), 64, 2),
        (request(budget=40, rounds=((4, 4),)), 6, 1),
        (request(budget=40, rounds=((4, 4),)), 9, 4),
        (request(budget=5, rounds=((0, 0),)), 64, 5),
    ],
)
def test_limits(asked: Request, max_len: int, count: int) -> None:
    """max_len counts the tokens of prompt (5 here) and emission together."""
    solved = solve(scenario(asked, max_len=max_len)).requests[0]
    assert len(solved.tokens) == count
    if count == 1:
        assert solved.rounds == ()


def test_requests_do_not_touch_one_another() -> None:
    asked = (request(), request(prompt=9, rounds=((4, -1),)), request(prompt=2, rounds=((2, 0), (0, 0))))
    together = solve(scenario(*asked)).requests
    assert together == tuple(solve(scenario(one)).requests[0] for one in asked)
