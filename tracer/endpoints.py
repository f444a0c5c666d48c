"""What is tested: a server over HTTP, or a subject in this process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, get_args

from draftproof.harness.subject_run import run_subject
from draftproof.properties.fit import fit
from draftproof.properties.lib.errors import require_input
from draftproof.properties.values.drafts import DRAFT_KINDS_BY_NAME, CheckpointDraft, Ngram
from draftproof.properties.values.scenario import (
    Checkpoint,
    Graphs,
    Memory,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    States,
)
from draftproof.properties.values.script import RequestScript, Script
from draftproof.properties.values.subject import Subject
from draftproof.subjects.openai.counters import accepted_between, counts_in, places_of, settled
from draftproof.subjects.openai.dialects import DIALECTS, Dialect, ServerAnswer, ServerRequest, answer_of
from draftproof.subjects.openai.http import AnswerError, Server, ServerError
from draftproof.tracer.program import BOS, VOCABULARY, Program
from draftproof.tracer.sessions import Asked, Session, TracerAnswer
from draftproof.tracer.simulated import Drafting

_APART, _SPARE, _AT_ONCE, _MOST_DRAFTS = 64, 2, 4, 64
"""Engine steps between the arrivals of two waves, pages that a request may take beyond its tokens,
and the most requests that decode together."""
Dtype = Literal["float32", "bfloat16", "float64"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)


class Endpoint(Protocol):
    """Something that decodes greedily with a tracer checkpoint; `drafting.width` is 0 if it is unknown."""

    name: str
    drafting: Drafting

    def serve(self, session: Session) -> list[TracerAnswer]:
        """Return what comes of each request."""


class HttpEndpoint:
    """A server at `url`, asked as `api` is or, without it, as whatever answers; `model` is a name that it wants.

    Raises ServerError for one that does not answer with token ids, or tells that it was given others.
    """

    def __init__(
        self, url: str, api: str | None = None, model: str | None = None, width: int = 0, timeout: float = 600
    ) -> None:
        self._server = Server(url.rstrip("/").removesuffix("/v1"), timeout)
        self._more = {"model": model} if model else {}
        self._dialect = self._detected([DIALECTS[api]] if api else [*DIALECTS.values()])
        self.name = f"{self._server.url} ({self._dialect.name})"
        try:
            metrics = self._server.get("/metrics")
        except ServerError:
            metrics = ""
        self._counted = places_of(counts_in(metrics))
        if width and self._counted not in (0, width):
            raise ServerError(f"invalid --drafts {width}: expected {self._counted}, as the server's /metrics says")
        self.drafting = Drafting(width or self._counted)

    def _detected(self, dialects: Sequence[Dialect]) -> Dialect:
        errors = list[str]()
        for dialect in dialects:
            try:
                self._answer(dialect, Asked(prompt=(BOS, 1, 2), count=1))
            except AnswerError:
                raise
            except ServerError as error:
                if "invalid --url" in str(error) or "did not answer" in str(error):
                    raise
                errors.append(str(error))
            else:
                return dialect
        told = [one for one in errors if "answered 404" not in one] or errors
        raise ServerError("; ".join(told))

    def serve(self, session: Session) -> list[TracerAnswer]:
        """Serve the waves in turn; the server's counters are read around requests that are alone."""
        found = dict[int, TracerAnswer]()
        for wave in session.waves:
            asked = [session.requests[i] for i in wave]
            is_counted = min(self._counted, self.drafting.width) > 0 and len(asked) == 1
            before = settled(self._server) if is_counted else {}
            with ThreadPoolExecutor(len(asked)) as threads:
                answers = list(threads.map(lambda one: self._answer(self._dialect, one), asked))
            served = [self._served(one) for one in answers]
            if is_counted and not served[0].tells_rounds:
                rounds, accepted = accepted_between(before, settled(self._server))
                served = [TracerAnswer(tokens=served[0].tokens, rounds=rounds, accepted=sum(accepted))]
            found.update(zip(wave, served, strict=True))
        return [found[i] for i in range(len(session.requests))]

    def _served(self, answer: ServerAnswer) -> TracerAnswer:
        width = self.drafting.width
        if not width:
            return TracerAnswer(tokens=answer.ids)
        if answer.accepted is None:
            return TracerAnswer(tokens=answer.ids, rounds=answer.rounds_taken, accepted=answer.accepted_total)
        left, lengths = len(answer.ids) - 1, list[int]()
        for accepted in answer.accepted:
            # The last round may be told whole, but no round has more than all of its drafts accepted.
            lengths.append(min(accepted + 1, left - sum(lengths)) if accepted <= width else accepted + 1)
        return TracerAnswer(tokens=answer.ids, lengths=tuple(one for one in lengths if one > 0))

    def _answer(self, dialect: Dialect, asked: Asked) -> ServerAnswer:
        answer = answer_of(self._server, dialect, ServerRequest(asked.prompt, asked.count, asked.stops), self._more)
        where = f"{self._server.url}{dialect.path}"
        if answer.prompt_tokens not in (None, len(asked.prompt)):
            raise ServerError(
                f"{where} counted {answer.prompt_tokens} tokens in a prompt of {len(asked.prompt)} ids: expected as"
                " many; does its tokenizer split ids?"
            )
        strange = [token for token in answer.ids if not 0 <= token < VOCABULARY]
        if strange:
            raise ServerError(
                f"{where} answered the id {strange[0]}: expected ids below {VOCABULARY}; does it serve the tracer"
                " checkpoint, with the checkpoint's own tokenizer?"
            )
        return answer


class TracerDraft(NamedTuple):
    """A draft of the checkpoint: its kind, and its folder ("" where it is in the checkpoint)."""

    algorithm: Literal["eagle", "eagle3", "mtp", "standalone"]
    path: str

    @property
    def most(self) -> int:
        """The most drafts of a round: one for each layer where none runs again."""
        return 1 if DRAFT_KINDS_BY_NAME[self.algorithm].layer_a_draft else _MOST_DRAFTS


def draft_of(program: Program, checkpoint: Path, folder: Path | None, has: Sequence[str]) -> TracerDraft | None:
    """Return the draft of a checkpoint, from `folder` or beside it; None if it has none. Raises InputError.

    An MTP layer runs again and again, as an EAGLE head, where the subject `has` such drafts.
    """
    if not program.has_draft:
        require_input(folder is None, "--draft-model", str(folder), "a tracer checkpoint with a draft")
        return None
    name: Literal["eagle", "eagle3", "standalone"]
    name = "standalone" if program.small else "eagle3" if program.head and program.head.features else "eagle"
    path = folder or checkpoint / name
    has_folder = (path / "config.json").is_file()
    require_input(folder is None or has_folder, "--draft-model", str(folder), "a directory with config.json")
    if has_folder:
        return TracerDraft(name, str(path))
    told = f"one with its draft in {path}, or --draft-model"
    require_input(name == "eagle", "--checkpoint", str(checkpoint), told)
    return TracerDraft("eagle" if "eagle" in has else "mtp", "")


class SubjectEndpoint:
    """A subject, which loads the checkpoint. Raises InputError for a dtype or a number of drafts that it has not.

    One that cannot be steered chooses how many drafts a round has: its rounds are compared where it is known
    (`is_known`) that these are `width`.
    """

    def __init__(
        self,
        subject: Subject,
        checkpoint: Path,
        draft: TracerDraft | None,
        width: int,
        dtype: Dtype,
        *,
        is_known: bool = False,
    ) -> None:
        self._subject, self._draft = subject, draft
        self._model = Checkpoint(path=str(checkpoint.resolve()), vocab=VOCABULARY, dtype=dtype)
        allowed = subject.limits.dtypes or DTYPES
        require_input(dtype in allowed, "--dtype", dtype, f"one that the subject takes, {', '.join(allowed)}")
        limits, fixed = subject.limits, subject.limits.fixed_drafts
        has_so_many = draft is None or not is_known or fixed in (0, width)
        require_input(has_so_many, "--drafts", width, f"{fixed}, which every round of it has")
        self._steps = fixed or min(width, draft.most if draft else width, limits.max_drafts or width)
        # A head has nothing to draft from behind a prompt of one token.
        with_prompt = limits.first_drafts == "with prompt"
        tells = is_known or limits.steering != "none" or fixed > 0
        is_told = draft and tells and not (with_prompt and draft.algorithm != "standalone")
        self.drafting = Drafting(self._steps if is_told else 0, with_prompt)
        self.name = subject.name

    def serve(self, session: Session) -> list[TracerAnswer]:
        """Run the session as one scenario. Raises SubjectCrashedError, and UnfitError for what it does not take."""
        scenario = fit(self._scenario(session), self._subject.limits)
        scripts = (RequestScript(tokens=(), stop=one.stops, rounds=()) for one in session.requests)
        trace = run_subject(self._subject, scenario, Script(requests=tuple(scripts)), "a session of a tracer")
        rounds: list[list[tuple[int, ...]]] = [[] for _ in session.requests]
        for key, tokens in sorted(trace.typed("accept.emitted", tuple).items()):
            rounds[key.request].append(tokens)
        width, first = self.drafting.width, 0 if self.drafting.with_prompt else 1
        return [
            TracerAnswer(
                tokens=tuple(token for one in of_request for token in one),
                lengths=tuple(len(one) for one in of_request[first:]) if width else None,
            )
            for of_request in rounds
        ]

    def _scenario(self, session: Session) -> Scenario:
        limits, size, width = self._subject.limits, session.page_size, self._steps + 1
        longest = max(len(one.prompt) + one.count for one in session.requests) + width
        pages = sum((len(one.prompt) + one.count + width) // size + 1 + _SPARE for one in session.requests)
        at_once = min(_AT_ONCE, len(session.requests))
        caches = limits.takes("prefix-cache")
        draft = self._draft
        made = (
            Ngram(max_n=3, match=limits.matches[0] if limits.matches else "earliest")
            if draft is None
            else CheckpointDraft(algorithm=draft.algorithm, path=draft.path, built_in=not draft.path)
        )
        return Scenario(
            model=self._model,
            draft=made,
            steps=self._steps,
            memory=Memory(
                page_size=size,
                pages=pages,
                request_slots=len(session.requests),
                max_len=longest,
                checkpoint_slots=3 if caches else 0,
            ),
            graphs=Graphs(sizes=tuple(range(1, at_once + 1))),
            schedule=Schedule(max_batch=at_once, chunk=session.chunk, prefix_cache=caches),
            states=States(checkpoint=size if caches else 0),
            requests=tuple(
                Request(
                    arrival=_APART * one.wave,
                    prompt=one.prompt,
                    budget=one.count,
                    rounds=(RoundPlan(num_drafts=self._steps, num_correct=-1),),
                    stops=one.stops,
                )
                for one in session.requests
            ),
        )
