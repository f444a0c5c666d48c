"""An audit of logs that were made with a mistake: it is told, although hardly any draft is accepted either way."""

from pathlib import Path

import pytest
import torch

from draftproof.harness.audit.audit import Question, Seen, audit
from draftproof.harness.audit.compared import as_counted
from draftproof.properties.formats.audit import AuditReport
from draftproof.properties.formats.round_log import LoggedRound, LoggedText, Prompt
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.audit.fast import FastSimulator
from draftproof.reference.audit.fast_pair import FastPair, read_fast
from draftproof.reference.audit.heads import Model
from draftproof.reference.audit.mistakes import Mistake, definition, mistakes
from draftproof.reference.audit.pair import AuditedPair, load_pair
from draftproof.reference.models.registry import load_target
from tests.checkpoints import VOCAB, tiny_head, tiny_llama

STEPS, BUDGET = 3, 7
PROMPTS = tuple(Prompt(prompt=tuple((5 * i + j * j + 1) % VOCAB for j in range(4 + i % 3))) for i in range(18))
KNOWN = {one.name: one for one in mistakes("eagle")}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> FastPair:
    folder = tmp_path_factory.mktemp("audited")
    target = tiny_llama(folder / "target")
    head = tiny_head(folder / "head", target, seed=3)
    read = read_fast(str(target), CheckpointDraft(path=str(head)), torch.float64)
    assert read is not None
    return read.on(torch.device("cpu"))


def logged(pair: FastPair, mistake: Mistake) -> tuple[LoggedText, ...]:
    simulator = FastSimulator(pair, PROMPTS, steps=STEPS, budget=BUDGET)
    texts = []
    for prompt, first, played in zip(PROMPTS, simulator.first_tokens, simulator.play(mistake), strict=True):
        rounds = [
            LoggedRound(request=0, round=number, drafts=one.drafts, emitted=one.emits)
            for number, one in enumerate(played, start=1)
        ]
        texts.append(LoggedText(prompt.prompt, (first,), tuple(rounds)))
    return tuple(texts)


def audited(pair: FastPair, log: tuple[LoggedText, ...]) -> AuditReport:
    question = Question("eagle", STEPS, Seen(log), every_mistake=False, seed=0)
    return audit(question, FastSimulator(pair, log=log, steps=STEPS))


def test_a_log_without_a_mistake_passes_and_no_mistake_is_tried(pair: FastPair):
    report = audited(pair, logged(pair, definition("eagle")))
    assert (report.verdict, report.explanations) == (Outcome.PASS, ())
    assert report.same_rounds == report.observed_rounds


@pytest.mark.parametrize("name", ["every step fed the target's state", "drafts of the round before"])
def test_a_log_fails_by_whose_drafts_it_has(name: str, pair: FastPair):
    report = audited(pair, logged(pair, KNOWN[name]))
    first = report.explanations[0]
    assert (report.verdict, first.name, first.ruled_out) == (Outcome.FAIL, name, False)
    assert first.same_rounds == report.observed_rounds
    assert first.explains == (report.observed_rounds or 0) - (report.same_rounds or 0) > len(PROMPTS) - 3
    assert name in report.says
    assert all(one.ruled_out for one in report.explanations if one.name == "as defined")


def test_an_accept_mistake_is_told_by_what_is_emitted(pair: FastPair):
    """Drafts are as they should be; a draft that is right and was not accepted is no mistake of the draft's."""
    name = "first draft emitted though wrong"
    log = logged(pair, KNOWN[name])
    report = audited(pair, log)
    assert (report.verdict, report.explanations[0].name) == (Outcome.FAIL, name)
    assert report.other_texts > 0


def appending(pair: AuditedPair, model: Model, prompt: tuple[int, ...]) -> LoggedText:
    """An engine whose draft appends to its cache, and after a full accept is fed the bonus without the last draft."""
    tokens, cache, rounds = list(pair.decode(prompt, BUDGET + STEPS).tokens), list(prompt), list[LoggedRound]()
    context = len(prompt)
    while context + 1 < len(prompt) + BUDGET:
        ran = [*cache, tokens[context]]
        for _ in range(STEPS):
            ran.append(int(model.forward(ran).logits[-1].argmax()))
        drafts = tuple(ran[-STEPS:])
        right = next((at for at, one in enumerate(drafts) if one != tokens[context + 1 + at]), STEPS)
        cache = ran[: len(cache) + min(right + 1, STEPS)]
        emitted = tuple(tokens[context + 1 : context + right + 2])
        rounds.append(LoggedRound(request=0, round=len(rounds) + 1, drafts=drafts, emitted=emitted))
        context += right + 1
    return LoggedText(prompt, (tokens[len(prompt)],), tuple(rounds))


VARYING, ONE_OR_NONE = (0, 3, 1, 0, 2), (0, 1, 0, 0, 1)


def unsure(pair: AuditedPair, model: Model, prompt: tuple[int, ...], counts: tuple[int, ...]) -> LoggedText:
    """An engine that is right, and drafts only as far as it is sure, which is at times not at all."""
    tokens, rounds, context = pair.decode(prompt, BUDGET + STEPS).tokens, list[LoggedRound](), len(prompt)
    while context + 1 < len(prompt) + BUDGET:
        ran = [*tokens[: context + 1]]
        for _ in range(counts[context % 5]):
            ran.append(int(model.forward(ran).logits[-1].argmax()))
        drafts = tuple(ran[context + 1 :])
        right = next((at for at, one in enumerate(drafts) if one != tokens[context + 1 + at]), len(drafts))
        emitted = tokens[context + 1 : context + right + 2]
        rounds.append(LoggedRound(request=0, round=len(rounds) + 1, drafts=drafts, emitted=emitted))
        context += right + 1
    return LoggedText(prompt, (tokens[len(prompt)],), tuple(rounds))


@pytest.mark.parametrize(
    ("counts", "told", "outcome"),
    [
        (VARYING, True, Outcome.PASS),
        (VARYING, False, Outcome.INCONCLUSIVE),
        (
            ONE_OR_NONE,
            True,
            Outcome.INCONCLUSIVE,
        ),  # it may be so that none has too few: "a draft fewer" has none at all
    ],
)
def test_rounds_without_drafts_are_no_alarm_where_the_engine_may_choose_their_number(
    counts: tuple[int, ...], told: bool, outcome: Outcome, tmp_path: Path
):
    target, small = str(tiny_llama(tmp_path / "target")), str(tiny_llama(tmp_path / "small", seed=1))
    draft = CheckpointDraft(algorithm="standalone", path=small)
    pair, model, read = load_pair(target, draft), load_target(small), read_fast(target, draft, torch.float64)
    assert read is not None
    log, steps = tuple(unsure(pair, model, one.prompt, counts) for one in PROMPTS), max(counts)
    log = as_counted(log, "standalone", steps) if told else log
    assert any(one.own_count for one in log) == (outcome is Outcome.PASS)
    question = Question("standalone", steps, Seen(log), every_mistake=False, seed=0)
    report = audit(question, FastSimulator(read.on(torch.device("cpu")), log=log, steps=steps))
    assert report.verdict is outcome
    assert ("drafts only where it is sure" in report.says) is (outcome is Outcome.INCONCLUSIVE)
    assert not any(one.own_count for one in as_counted(log, "ngram", steps))


def test_a_cache_that_appends_and_lacks_a_token_is_told(tmp_path: Path):
    target = str(tiny_llama(tmp_path))
    draft = CheckpointDraft(algorithm="standalone", path=target)
    pair, model, read = load_pair(target, draft), load_target(target), read_fast(target, draft, torch.float64)
    assert read is not None
    log = tuple(appending(pair, model, one.prompt) for one in PROMPTS)
    question = Question("standalone", STEPS, Seen(log), every_mistake=False, seed=0)
    report = audit(question, FastSimulator(read.on(torch.device("cpu")), log=log, steps=STEPS))
    name = "cache a token short after a full accept, all later positions one behind"
    first = report.explanations[0]
    assert (report.verdict, first.name) == (Outcome.FAIL, name)
    assert first.same_rounds == report.observed_rounds
