"""A server as a subject: what it emits is judged, and what it cannot do is told."""

from __future__ import annotations

import json
import platform
from functools import cache, partial
from pathlib import Path

import pytest

from draftproof.cli import drafts
from draftproof.cli.app import run
from draftproof.fuzz.campaign import run as campaign
from draftproof.harness.execute import Executor
from draftproof.harness.workers.messages import Order
from draftproof.harness.workers.pool import Pool
from draftproof.properties.features.adaptive_steps import with_steps
from draftproof.properties.fit import fitted
from draftproof.properties.lib.errors import ConditionError
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import steering
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import solved
from draftproof.subjects.making import made
from draftproof.subjects.openai import OpenaiSubject
from draftproof.subjects.openai.dialects import DIALECTS, ServerAnswer, ServerRequest, answer_of, text_of
from draftproof.subjects.openai.http import Server, ServerError
from tests.checkpoints import tiny_llama
from tests.harness.forked import FORKED
from tests.named.real import real
from tests.subjects.fake_server import greedy, serving

APIS = tuple(DIALECTS)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("served") / "llama")


@pytest.fixture(scope="module")
def scenarios(checkpoint: Path) -> list[Scenario]:
    (scenario,) = real(checkpoint, ["eagle_padded"], "ngram")
    assert len(scenario.requests) == 2
    return [scenario]


reference = cache(solved)


def answer(subject: Subject, scenario: Scenario) -> Outcome:
    (fit,) = fitted([scenario], subject.limits)
    return Executor(subject, reference=reference, deadline=60.0).examine(Order(number=0, scenario=fit))


@pytest.mark.parametrize("arrivals", ["together", "serial"])
@pytest.mark.parametrize("api", APIS)
def test_what_decodes_greedily_passes(api, arrivals, checkpoint, scenarios):
    with serving(checkpoint) as server:
        subject = OpenaiSubject(server.url, api=api, arrivals=arrivals)
        judged = answer(subject, scenarios[0])
        assert server.done == len(scenarios[0].requests)
    assert (judged.outcome, judged.detail) == (Outcome.PASS, "")
    assert "output.lossless" in judged.judged


@pytest.mark.parametrize("api", APIS)
def test_a_text_ends_at_its_first_stop_id(api, checkpoint):
    """SGLang goes on with `ignore_eos`, and llama.cpp knows no stop ids."""
    whole = greedy(str(checkpoint), (3, 9, 4), 8, ())
    with serving(checkpoint) as server:
        asked = ServerRequest((3, 9, 4), 8, (whole[2],))
        text = text_of(Server(server.url, 60.0), DIALECTS[api], asked)
    assert text == whole[: whole.index(whole[2]) + 1]


@pytest.mark.parametrize(("stops", "rounds"), [((), 7), ((2,), None), ((7,), 7)])
def test_rounds_are_told_of_a_text_that_was_not_cut(stops, rounds, checkpoint):
    """SGLang counts the rounds behind a stop id, too: live 0.5.13 had 7 where the text took 4."""
    whole = greedy(str(checkpoint), (3, 9, 4), 8, ())
    with serving(checkpoint) as server:
        asked = ServerRequest((3, 9, 4), 8, tuple(whole[place] for place in stops))
        told = answer_of(Server(server.url, 60.0), DIALECTS["sglang"], asked)
    assert told.rounds_taken == rounds


@pytest.mark.parametrize("wrong", ["wrong token", "short"])
def test_a_wrong_text_fails(wrong, checkpoint, scenarios):
    with serving(checkpoint, wrong) as server:
        judged = answer(OpenaiSubject(server.url), scenarios[0])
    assert judged.outcome is Outcome.FAIL
    assert judged.failed == ("output.lossless",)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("text only", "answers without token ids: expected a server that returns them; return_token_ids is in vLLM"),
        ("stops mid-way", "stopped mid-way: IncompleteRead"),
        ("no JSON", "answered what is no JSON: '<html>"),
        ("refuses", "answered 400: "),
    ],
)
def test_what_a_server_does_not_do_is_told(wrong, said, checkpoint, scenarios):
    with serving(checkpoint, wrong) as server:
        judged = answer(OpenaiSubject(server.url), scenarios[0])
    assert (judged.outcome, judged.error) == (Outcome.CRASH, "ServerError")
    assert said in judged.message


def test_its_counters_are_what_a_run_adds(checkpoint, scenarios):
    scenario = with_steps(scenarios[0], 3)
    with serving(checkpoint) as server:
        server.done = 7
        subject = OpenaiSubject(server.url, drafts="3")
        (fit,) = fitted([scenario], subject.limits)
        trace = subject.run(fit, steering(reference(fit).script))
        served = server.done - 7
        assert "total.drafts" not in subject.channels(with_steps(scenarios[0], 2))
    key = Key(-1, 0)
    totals = {name: trace.channel(name)[key] for name in trace.channels if name.startswith("total.")}
    assert served == len(scenario.requests)
    assert totals == {
        "total.rounds": served,
        "total.drafts": 3 * served,
        "total.accepted": 2 * served,
        "total.accepted_at": (served, served, 0),
    }


def test_rounds_are_told_where_answers_have_them(checkpoint, scenarios):
    with serving(checkpoint, "tells rounds") as server:
        subject = OpenaiSubject(server.url, rounds="yes")
        (fit,) = fitted([scenarios[0]], subject.limits)
        script = steering(reference(fit).script)
        by_round = subject.run(fit, script).channel("accept.emitted")
        whole = OpenaiSubject(server.url).run(fit, script).channel("accept.emitted")
    for request in range(len(fit.requests)):
        rounds = [by_round[key] for key in sorted(by_round) if key.request == request]
        assert len(rounds[0]) == 1
        assert {len(tokens) for tokens in rounds[1:-1]} <= {2}
        assert sum(rounds, ()) == whole[Key(request, 0)]


@pytest.mark.parametrize(
    ("accepted", "said"),
    [(None, "--per-request-spec-decode-metrics detailed"), ((1, 1), "2 rounds with 2 accepted"), ((9, 0), "2 rounds")],
)
def test_rounds_that_do_not_make_up_a_text_are_refused(accepted, said):
    with pytest.raises(ServerError, match=said):
        ServerAnswer((5, 6, 7, 8, 9, 1), accepted).rounds()
    assert ServerAnswer((5, 6, 7, 8, 9, 1), (1, 4)).rounds() == ((5,), (6, 7), (8, 9, 1))


def test_hooks_say_what_a_server_offers(checkpoint):
    found = {}
    for wrong in ("", "text only", "no metrics"):
        with serving(checkpoint, wrong) as server:
            found[wrong] = {hook.name: hook.found for hook in OpenaiSubject(server.url).hooks()}
    assert found == {
        "": {"token ids": True, "counters": True},
        "text only": {"token ids": False, "counters": True},
        "no metrics": {"token ids": True, "counters": False},
    }


def test_what_cannot_be_asked_is_told(checkpoint):
    with serving(checkpoint, "no metrics") as server:
        url = server.url
        for given, said in {
            ("url", "localhost:1"): "invalid --url 'localhost:1': expected http://HOST:PORT",
            ("api", "soap"): "invalid --set api=soap: expected vllm or llama or sglang",
            ("arrivals", "late"): "invalid --set arrivals=late: expected together or serial",
            ("rounds", "true"): "invalid --set rounds=true: expected yes or no",
            ("drafts", "few"): "invalid --set drafts=few: expected a whole number, 0 .. 64",
            ("drafts", "-1"): "invalid --set drafts=-1: expected a whole number",
            ("timeout", "0"): "invalid --set timeout=0: expected a whole number, 1 .. 86400",
            ("drafts", "3"): f"{url}/metrics answered 404",
        }.items():
            with pytest.raises(ConditionError) as caught:
                made("openai", {"url": url, **dict([given])})
            assert said in str(caught.value)
    with serving(checkpoint) as server, pytest.raises(ServerError) as caught:
        OpenaiSubject(server.url, drafts="4")
    expected = "expected 3, the drafts of a round that the server was started with, as "
    assert str(caught.value) == f"invalid --set drafts=4: {expected}{server.url}/metrics says"
    with pytest.raises(ServerError, match=r"invalid --url .*: expected a server that answers there, not .*refused"):
        OpenaiSubject(url)


def test_on_the_command_line(checkpoint, scenarios, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drafts, "generated", lambda *_: iter(scenarios))
    options = ["--model", str(checkpoint), "--draft", "ngram", "--subject", "openai", "--examples", "2"]
    assert run(["check", *options]) == 2
    assert "invalid subject 'openai' without url: expected --url URL" in " ".join(capsys.readouterr().err.split())
    with serving(checkpoint, "wrong token") as server:
        assert run(["check", *options, "--url", server.url, "--json", "out.json"]) == 1
        url = server.url
    report = json.loads(Path("out.json").read_text())
    assert (report["verdict"], report["level"], report["subject"]) == ("FAIL", "text", "openai (vllm 0.0-fake)")
    assert report["versions"] == {"python": platform.python_version()}
    out = capsys.readouterr().out
    assert f"--subject openai --url {url}" in out
    see = f"Before anything else see whether {url} serves the checkpoint of --model: {url}/v1/models says what"
    assert out.index(see) < out.index("FAIL output.lossless")
    with serving(checkpoint, "wrong token") as server:
        case = report["findings"][0]["case"]
        assert run(["replay", case, "--subject", "openai", "--url", server.url]) == 1
    assert f"Before anything else see whether {server.url} serves" in capsys.readouterr().out
    with serving(checkpoint) as server:
        assert run(["check", *options, "--url", server.url]) == 0
    out = capsys.readouterr().out
    assert "Before anything else" not in out
    # What no text can show is no zero of its own.
    exercised = next(line for line in out.splitlines() if line.startswith("exercised: texts_shown "))
    assert ", tokens_emitted " in exercised
    assert "drafts_accepted" not in exercised
    assert "own accepted/rejected" not in out
    assert f"versions: python {platform.python_version()}\n" in out
    assert run(["check", *options, "--url", url]) == 2
    assert f"invalid --url '{url}': expected a server that answers there" in capsys.readouterr().err


def test_a_campaign_goes_on_with_its_server(checkpoint, tmp_path, monkeypatch, capsys):
    """Whoever resumes it need not name the server again: it is fitted to its limits all the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(campaign, "Pool", partial(Pool, start=FORKED, deadline=120.0))
    asked: list[Limits] = []
    planner = campaign.FittedPlanner

    def noted(guide, settings, limits):
        asked.append(limits)
        return planner(guide, settings, limits)

    monkeypatch.setattr(campaign, "FittedPlanner", noted)
    with serving(checkpoint) as server:
        choice = ["--subject", "openai", "--url", server.url, "--model", str(checkpoint), "--draft", "ngram"]
        for count, options in ((1, choice), (2, [])):
            run(["fuzz", "--run", "run", "--workers", "1", "--examples", str(count), *options, "--json", "out.json"])
        limits = OpenaiSubject(server.url).limits
    assert asked == [limits, limits]
    report, out = json.loads(Path("out.json").read_text()), capsys.readouterr().out
    told = f"openai (vllm 0.0-fake) with python {platform.python_version()}"
    assert (report["scenarios"], report["versions"], report["level"]) == (2, told, "text")
    assert f"{told}, at the level of text" in out
    assert "contracts had nothing to judge: SKIP" in out
    assert "draft.positions" not in out
