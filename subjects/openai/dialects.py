"""How servers want to be asked, and where their answers have the token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from draftproof.subjects.openai.http import AnswerError, Server, ServerError

_SHOWN = 60
Field = tuple[str, ...]


class ServerRequest(NamedTuple):
    """A request: its prompt, most tokens to emit, and the ids that end it."""

    prompt: tuple[int, ...]
    most: int
    stops: tuple[int, ...]


class Dialect(NamedTuple):
    """A kind of server. `stops`: it ends a request at stop ids by itself; else the text is cut here.

    SGLang stops only without `ignore_eos` (`Req._check_token_based_finish`), llama.cpp never.

    `version` is a path and a field of the response, `serves` the path that names the checkpoint. Fields of an answer
    that not all servers have are named by the way to them; one of no name is in no answer.
    """

    name: str
    path: str
    body: Callable[[ServerRequest], dict[str, Any]]
    ids: Callable[[Any], Any]
    stopped_at: Callable[[Any], Any]
    version: tuple[str, str]
    serves: str
    stops: bool = True
    hint: str = ""
    accepted: Field = ()
    prompt_tokens: Field = ()
    rounds_taken: Field = ()
    accepted_total: Field = ()


class ServerAnswer(NamedTuple):
    """The tokens that a server emitted for a request and, where it says so, the drafts accepted in each round.

    Some say how many tokens the prompt had, in how many rounds drafts were verified, and how many were accepted in all.
    """

    ids: tuple[int, ...]
    accepted: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    rounds_taken: int | None = None
    accepted_total: int | None = None

    def rounds(self) -> tuple[tuple[int, ...], ...]:
        """Return the tokens by round, the prompt's own first. Raises ServerError."""
        if self.accepted is None:
            raise ServerError(
                "the server's answers have no accepted drafts by round: expected one that was started with"
                " --per-request-spec-decode-metrics detailed (vLLM 0.32), or an audit of counts, from its /metrics"
            )
        rounds, first = [self.ids[:1]], 1
        for accepted in self.accepted:
            rounds.append(self.ids[first : first + accepted + 1])
            first += accepted + 1
        if not all(rounds) or first < len(self.ids):
            raise ServerError(
                f"{len(self.accepted)} rounds with {sum(self.accepted)} accepted drafts do not make up the"
                f" {len(self.ids)} tokens of an answer: expected drafts in every round"
            )
        return tuple(rounds)


def _completions(asked: ServerRequest) -> dict[str, Any]:
    return {
        "prompt": list(asked.prompt),
        "max_tokens": asked.most,
        "temperature": 0,
        "stop_token_ids": list(asked.stops),
        "ignore_eos": True,
        "return_token_ids": True,
    }


def _llama(asked: ServerRequest) -> dict[str, Any]:
    return {
        "prompt": list(asked.prompt),
        "n_predict": asked.most,
        "temperature": 0,
        "cache_prompt": False,
        "return_tokens": True,
    }


def _generate(asked: ServerRequest) -> dict[str, Any]:
    params = {"temperature": 0, "max_new_tokens": asked.most, "stop_token_ids": list(asked.stops), "ignore_eos": True}
    return {"input_ids": list(asked.prompt), "sampling_params": params}


def _matched(answer: Any) -> Any:
    try:
        return answer["meta_info"]["finish_reason"]["matched"]
    except (KeyError, IndexError, TypeError):
        return None


DIALECTS = {
    one.name: one
    for one in (
        Dialect(
            "vllm",
            "/v1/completions",
            _completions,
            lambda answer: answer["choices"][0]["token_ids"],
            lambda answer: answer["choices"][0].get("stop_reason"),
            ("/version", "version"),
            "/v1/models",
            hint="return_token_ids is in vLLM since 0.10.1",
            accepted=("metrics", "speculative_decoding", "per_step_accepted"),
            prompt_tokens=("usage", "prompt_tokens"),
        ),
        Dialect(
            "llama",
            "/completion",
            _llama,
            lambda answer: answer["tokens"],
            lambda _answer: None,
            ("/props", "build_info"),
            "/props",
            stops=False,
            hint="return_tokens is in llama.cpp's server since the end of 2024",
            prompt_tokens=("tokens_evaluated",),
            accepted_total=("timings", "draft_n_accepted"),
        ),
        Dialect(
            "sglang",
            "/generate",
            _generate,
            lambda answer: answer["output_ids"],
            _matched,
            ("/server_info", "version"),
            "/get_model_info",
            stops=False,
            hint="output_ids is in SGLang's answers in newer releases, and with --skip-tokenizer-init",
            prompt_tokens=("meta_info", "prompt_tokens"),
            rounds_taken=("meta_info", "spec_verify_ct"),
        ),
    )
}


def answer_of(
    server: Server, dialect: Dialect, asked: ServerRequest, more: Mapping[str, Any] = MappingProxyType({})
) -> ServerAnswer:
    """Return what a server answers to a request, with `more` fields.

    Raises ServerError, and AnswerError for a field that is there and is not what it must be.
    """
    answer = server.post(dialect.path, {**dialect.body(asked), **more})
    emitted = _emitted(answer, server, dialect)
    ids = emitted if dialect.stops else emitted[: _end(emitted, asked.stops)]
    # Some releases leave out the token that they stopped at.
    stop = dialect.stopped_at(answer)
    whole = (*ids, stop) if type(stop) is int and stop in asked.stops and ids[-1:] != (stop,) else ids
    where = f"{server.url}{dialect.path}"
    accepted, prompt, rounds, total = (
        _accepted_of(answer, dialect.accepted, where),
        *(_count(answer, one, where) for one in (dialect.prompt_tokens, dialect.rounds_taken, dialect.accepted_total)),
    )
    # Rounds behind the place where a text is cut are counted, too, and nothing says how many.
    rounds, total = (rounds, total) if ids == emitted else (None, None)
    return ServerAnswer(whole, accepted, prompt, rounds, total)


def text_of(server: Server, dialect: Dialect, asked: ServerRequest) -> tuple[int, ...]:
    """Return the tokens that a server emits for a request. Raises ServerError."""
    return answer_of(server, dialect, asked).ids


def _count(answer: Any, field: Field, where: str) -> int | None:
    """Return a number that an answer may have. Raises AnswerError."""
    found = _told(answer, field, where)
    if found is None:
        return None
    if not _is_count(found):
        raise _malformed(field, found, where, "a whole number, 0 or more")
    return int(found)


def _accepted_of(answer: Any, field: Field, where: str) -> tuple[int, ...] | None:
    """Return the accepted drafts of each round, which an answer may have. Raises AnswerError."""
    found = _told(answer, field, where)
    if found is None:
        return None
    if not isinstance(found, list) or not all(map(_is_count, found)):
        raise _malformed(field, found, where, "a list of whole numbers, each 0 or more")
    return tuple(found)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _told(answer: Any, field: Field, where: str) -> Any:
    """Return what an answer has on the way of a field; None where a part of it is missing or null. Raises AnswerError.

    Whoever gets None was told nothing, so what is there in another form must not become that.
    """
    found = answer if field else None
    for place, name in enumerate(field):
        if found is None:
            break
        if not isinstance(found, dict):
            raise _malformed(field[:place], found, where, f"an object with {name}, or none")
        found = found.get(name)
    return found


def _malformed(field: Field, value: Any, where: str, allowed: str) -> AnswerError:
    said = repr(value)
    said = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}.."
    return AnswerError(f"{where} answered {'.'.join(field) or 'JSON'} {said}: expected {allowed}")


def _emitted(answer: Any, server: Server, dialect: Dialect) -> tuple[int, ...]:
    """Return the token ids of an answer. Raises ServerError."""
    try:
        ids = tuple(dialect.ids(answer))
    except (KeyError, IndexError, TypeError):
        raise ServerError(
            f"{server.url}{dialect.path} answers without token ids: expected a server that returns them; {dialect.hint}"
        ) from None
    if not all(type(token) is int for token in ids):
        raise ServerError(f"{server.url}{dialect.path} answered {ids[:4]}.. for token ids: expected integers")
    return ids


def _end(ids: tuple[int, ...], stops: tuple[int, ...]) -> int:
    """Return how many ids there are up to the first stop id."""
    return next((at for at, token in enumerate(ids, start=1) if token in stops), len(ids))
