"""Scenarios of a feature: which are selected, what a check of them asks for, and what it says where there are none."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftproof.cli import drafts
from draftproof.cli.app import run
from draftproof.engine.subject import EngineSubject
from draftproof.harness.check import Checker
from draftproof.properties import select as selecting
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage.covered import not_asked_with
from draftproof.properties.coverage.effects import EFFECTS, in_effect, together, without_effect
from draftproof.properties.coverage.facts import FACT_NAMES
from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, features_of, refusal
from draftproof.properties.fit import fitted
from draftproof.properties.judge import skipped_where_unconcerned
from draftproof.properties.lib.paths import put_in
from draftproof.properties.select import NoScenarioError, select
from draftproof.properties.validate import validate
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome, Verdict
from tests.cli.test_commands import error_of
from tests.harness.subjects import Altered, one_ahead
from tests.named import OF_DRAFT, named, names
from tests.properties.facts import names_of, taking

WINDOWED_EAGLE = put_in(named("eagle_padded"), "draft", window=8)
LISTED = [*map(named, names()), WINDOWED_EAGLE]
BOTH = ("hybrid", "trees")
SCHEDULE = named("aborted").schedule


def has_both(scenario: Scenario) -> bool:
    return all(FEATURES_BY_NAME[name].has(scenario) for name in BOTH)


@pytest.mark.parametrize("name", [one.name for one in FEATURES if not one.of_model])
def test_a_subject_that_lacks_a_feature_has_no_such_scenarios(name: str):
    limits = Limits(features=tuple(one for one in FEATURES_BY_NAME if one != name))
    with pytest.raises(NoScenarioError, match=f"{name}: nothing that this subject can run"):
        select(LISTED, [FEATURES_BY_NAME[name]], 1, limits)
    assert not any(map(FEATURES_BY_NAME[name].has, fitted(LISTED[:60], limits)))


def test_the_first_of_the_list_that_have_all_features_are_selected():
    wanted = [FEATURES_BY_NAME[name] for name in BOTH]
    having = filter(has_both, LISTED)
    found = select(LISTED, wanted, 3, NO_LIMITS)
    assert found.scenarios == tuple(islice(having, 3))
    assert found.looked_at == LISTED.index(found.scenarios[-1]) + 1
    assert select(LISTED, wanted, 2, NO_LIMITS).scenarios == found.scenarios[:2]


def test_fewer_are_selected_where_the_search_ends(monkeypatch):
    monkeypatch.setattr(selecting, "PATIENCE", 5)
    having, others = (
        next(one for one in LISTED if bool(one.schedule.overlap) is has_overlap) for has_overlap in (True, False)
    )
    found = select([having, *[others] * 4, having, *[others] * 5, having], [FEATURES_BY_NAME["overlap"]], 3, NO_LIMITS)
    assert found == ((having, having), 11)
    found = select([having, others], [FEATURES_BY_NAME["overlap"]], 3, NO_LIMITS)
    assert found == ((having,), 2)


def test_a_check_of_fewer_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    number = next(at for at, one in enumerate(LISTED) if has_both(one))
    monkeypatch.setattr(drafts, "generated", lambda *_: iter(LISTED[: number + 1]))
    assert run(["check", "--with", "hybrid", "--with", "trees", "--examples", "3", "--json", "report.json"]) in (0, 125)
    told = f"only 1 with hybrid and trees among the first {number + 1} scenario"
    assert told in capsys.readouterr().out
    assert json.loads(Path("report.json").read_text())["examples"] == 1


@pytest.mark.parametrize(
    "names",
    [
        "overlap disaggregation",
        "trees drawn-drafts",
        "data-parallel tensor-parallel",
    ],
)
def test_features_that_exclude_each_other_are_told_at_once_with_the_definition(names: str):
    one, other = names.split()
    told = f"{one} is not defined beside {other}: {refusal(one, other)}"
    assert re.search(r"S-[A-Z]+-\d+", told)
    with pytest.raises(NoScenarioError, match=re.escape(told)):
        select(iter(()), [FEATURES_BY_NAME[one], FEATURES_BY_NAME[other]], 1, NO_LIMITS)


def test_a_check_of_features_that_exclude_each_other_says_which_definition_does(capsys):
    assert run(["check", "--with", "disaggregation", "--with", "overlap"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "disaggregation is not defined beside overlap: S-OVERLAP-1 delays the results of one engine" in said


def test_a_draft_that_has_no_such_scenarios_is_told_soon_with_the_reason():
    """After each draft has had its turn, not after a thousand scenarios."""
    lookups, chains = ([named(OF_DRAFT[name])] * 40 for name in ("ngram", "mtp"))
    with pytest.raises(NoScenarioError, match="drawn-drafts is not defined with ngram: it has no distribution to draw"):
        select(iter(lookups[:30]), [FEATURES_BY_NAME["drawn-drafts"]], 1, NO_LIMITS)
    with pytest.raises(NoScenarioError, match="trees is not defined with mtp: it proposes chains or blocks"):
        select(chains, [FEATURES_BY_NAME["trees"]], 1, NO_LIMITS)


def test_where_none_is_found_it_says_among_how_many():
    plain = [one for one in LISTED if not one.schedule.overlap][:5]
    with pytest.raises(NoScenarioError, match="none of the first 5 scenarios has it"):
        select(plain, [FEATURES_BY_NAME["overlap"]], 1, NO_LIMITS)
    with pytest.raises(NoScenarioError, match="none of the first 5 scenarios has all of them"):
        select(plain, [FEATURES_BY_NAME["overlap"], FEATURES_BY_NAME["sampling"]], 1, NO_LIMITS)


def test_what_takes_another_feature_is_not_asked_for():
    beyond = not_asked_with(["preemption"])
    assert not beyond & {"preemptions", "preempted_again", "resumed_in_chunks"}
    assert {*names_of("penalties"), "variant_alone"} <= beyond
    assert beyond >= taking("hybrid")
    assert not not_asked_with(["hybrid"]) & {"hybrid_scenarios", "states_committed_partial", "replays_folded"}
    assert "decode_rounds" not in beyond
    assert "admitted_before_others" not in beyond
    assert "admitted_before_others" in not_asked_with(["data-parallel"])
    assert {name for one in FEATURES for name in one.lacks} <= set(FACT_NAMES)


def test_a_contract_that_concerns_nothing_is_skipped_and_no_other():
    given = [
        Verdict(name=name, verdict=outcome, scenarios=scenarios, missing=("scenarios >= 1",))
        for name, outcome, scenarios in (
            ("none", Outcome.INCONCLUSIVE, 0),
            ("few", Outcome.INCONCLUSIVE, 3),
            ("all", Outcome.PASS, 3),
        )
    ]
    skipped, *others = skipped_where_unconcerned(given)
    assert (skipped.verdict, skipped.missing) == (Outcome.SKIP, ())
    assert others == given[1:]


def test_a_check_runs_scenarios_with_the_features_only(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    late, other = (replace(named("aborted"), schedule=replace(SCHEDULE, overlap=by)) for by in (("late",), ("none",)))
    listed = [named("aborted"), late, named("overlapped_stop"), late, named("eagle_padded"), other]
    monkeypatch.setattr(drafts, "generated", lambda *_: map(validate, listed))
    words = ["check", "--with", "overlap", "--with", "aborts", "--seed", "4", "--examples", "3"]
    assert run([*words, "--json", "report.json"]) in (0, 125)
    report = json.loads(Path("report.json").read_text())
    assert list(report["features"]) == ["overlap", "aborts"]
    assert report["examples"] == report["features"]["aborts"] == 3
    rows = {row["name"]: row for row in report["contracts"]}
    assert not [name for name in rows if name.startswith(("kernel.", "runs."))]
    assert rows["disaggregation.engines"]["verdict"] == "SKIP"
    assert "--with overlap --with aborts --draft all" in capsys.readouterr().out.splitlines()[-1]


def test_states_of_trees_are_kept_where_they_were_computed(tmp_path, monkeypatch):
    """Few scenarios of a whole check have both, and a request of theirs that ends early."""
    monkeypatch.chdir(tmp_path)
    words = ["check", "--with", "trees", "--with", "hybrid", "--seed", "6", "--examples", "24"]
    assert run([*words, "--json", "report.json"]) in (0, 125)
    report = json.loads(Path("report.json").read_text())
    assert report["verdict"] in ("PASS", "INCONCLUSIVE")
    assert report["findings"] == []


@pytest.mark.parametrize("of", ["preemption", "windows"])
def test_a_feature_that_did_nothing_is_inconclusive(of: str):
    """Scenarios of which each has it, on an engine whose counts of it are taken away."""
    assert in_effect([of], [{"preemptions": 1, "window_drafts": 2}, {"window_prompts": 0}]) == {of: 1}
    lacking = without_effect({of: 0}, 0, frozenset())
    assert lacking == (f"{' or '.join(EFFECTS[of])} >= 1",)
    assert not without_effect({of: 1}, 1, frozenset())
    assert not without_effect({of: 0}, 0, frozenset(EFFECTS[of]))


def test_features_that_were_never_in_effect_together_are_inconclusive():
    wanted = ("preemption", "prefix-cache")
    apart = [{"preemptions": 1}, {"prefix_hits": 2}]
    assert (in_effect(wanted, apart), together(wanted, apart)) == ({"preemption": 1, "prefix-cache": 1}, 0)
    assert without_effect(in_effect(wanted, apart), 0, frozenset()) == ("preemption and prefix-cache together >= 1",)
    assert together(wanted, [*apart, {"preemptions": 1, "prefix_hits": 1}]) == 1
    assert not without_effect({"preemption": 2, "prefix-cache": 2}, 1, frozenset())
    # What a subject cannot show is not asked of it.
    assert not without_effect({"preemption": 0, "prefix-cache": 1}, 0, frozenset({"preemptions"}))


def test_every_feature_has_counts_that_tell_its_effect():
    assert set(EFFECTS) == set(FEATURES_BY_NAME)
    assert {name for counts in EFFECTS.values() for name in counts} <= set(FACT_NAMES)


def test_where_nobody_gave_way_a_check_of_preemption_is_inconclusive(tmp_path):
    """The same scenario with few pages, and with enough for all."""
    tokens = [one for one in ALL if one.name == "accept.emitted"]
    work = Checker(EngineSubject(), tokens, tmp_path, work=(), each=None, guarded=False, features=("preemption",))
    some = [one for one in LISTED if FEATURES_BY_NAME["preemption"].has(one)][:8]
    few = work.check(some, 0)
    assert 0 < few.features["preemption"] <= len(some)
    assert few.verdict is Outcome.PASS
    many = work.check([replace(one, memory=replace(one.memory, pages=1000)) for one in some], 0)
    assert (many.verdict, many.features) == (Outcome.INCONCLUSIVE, {"preemption": 0})
    assert many.contracts[0].missing == ("preemptions >= 1",)


def test_what_a_draft_does_not_have_is_no_pass(capsys, monkeypatch):
    lookup = validate(put_in(named("ngram_matches"), "schedule", disaggregation=True))
    monkeypatch.setattr(drafts, "generated", lambda *_: iter([lookup]))
    words = [
        "check",
        "--with",
        "disaggregation",
        "--draft",
        "ngram",
        "--contract",
        "disaggregation.hidden",
        "--examples",
        "1",
    ]
    assert run(words) == 125
    assert (
        "disaggregation.hidden judged nothing: no scenario of this model and draft has disaggregated_hidden_states."
        in capsys.readouterr().out
    )


def test_a_failing_case_says_which_scenarios_it_was_among(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drafts, "generated", lambda *_: map(named, ("eagle_padded", "hybrid_replay")))
    monkeypatch.setattr("draftproof.cli.inputs.engine", lambda _device: Altered(one_ahead))
    words = ["--contract", "draft.positions", "--draft", "eagle", "--examples", "1"]
    assert run(["check", "--with", "hybrid", *words, "--json", "report.json"]) == 1
    (finding,) = json.loads(Path("report.json").read_text())["findings"]
    case = json.loads(Path(finding["case"]).read_text())
    assert case["origin"].startswith("draftproof check --seed 0 --with hybrid, scenario ")
    assert "linear_attention" in case["scenario"]["model"]["layer_types"]


def test_names_that_are_no_feature_are_refused_with_those_that_are(capsys):
    told = error_of(capsys, "check", "--with", "preemtion")
    assert (
        f"invalid --with 'preemtion': expected one of {', '.join(FEATURES_BY_NAME)}; did you mean preemption?" in told
    )


@pytest.mark.parametrize("words", ["--with overlap", "--subject engine", "--with overlap --contract draft"])
def test_kernels_are_called_beside_probes_of_the_engine_only(words: str, capsys):
    told = error_of(capsys, "check", *words.split(), "--contract", "kernel.rope")
    assert "invalid --contract kernel.rope with --with, --model or --subject: expected contracts of scenarios" in told


def test_a_combination_that_is_never_generated_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(drafts, "generated", lambda *_: iter(LISTED))
    told = error_of(capsys, "check", "--with", "data-parallel", "--with", "tensor-parallel", "--draft", "eagle")
    assert "invalid --with data-parallel --with tensor-parallel with --draft eagle: data-parallel is not" in told


def test_documentation_lists_every_feature():
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for one in FEATURES:
        assert f"| `{one.name}` | {one.what} |" in text
    assert len(ALL) > len(FEATURES)
    assert features_of(LISTED[0]) == tuple(one.name for one in FEATURES if one.has(LISTED[0]))
