"""A field of a server's answer is what it must be, or it is not there: nothing in between is taken for untold."""

from __future__ import annotations

from typing import Any, cast

import pytest

from draftproof.subjects.openai.counters import accepted_between, counts_in
from draftproof.subjects.openai.dialects import DIALECTS, ServerAnswer, ServerRequest, answer_of
from draftproof.subjects.openai.http import AnswerError, Server

BODIES: dict[str, dict[str, Any]] = {
    "vllm": {"choices": [{"token_ids": [1, 2, 3]}]},
    "llama": {"tokens": [1, 2, 3]},
    "sglang": {"output_ids": [1, 2, 3]},
}
FIELDS = {
    ("vllm", "accepted"): ("metrics", "speculative_decoding", "per_step_accepted"),
    ("vllm", "prompt_tokens"): ("usage", "prompt_tokens"),
    ("llama", "accepted_total"): ("timings", "draft_n_accepted"),
    ("llama", "prompt_tokens"): ("tokens_evaluated",),
    ("sglang", "rounds_taken"): ("meta_info", "spec_verify_ct"),
    ("sglang", "prompt_tokens"): ("meta_info", "prompt_tokens"),
}
STRANGE = ["2", 1.0, True, -1, {}]


class Answering:
    """Stands for a server that answers one thing."""

    url = "http://here"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._answer


def answered(api: str, path: tuple[str, ...], value: Any) -> ServerAnswer:
    """Return what is read of an answer that has a value there."""
    for name in reversed(path):
        value = {name: value}
    server = cast(Server, Answering({**BODIES[api], **value}))
    return answer_of(server, DIALECTS[api], ServerRequest((5, 6), 3, ()))


@pytest.mark.parametrize(("api", "name"), FIELDS)
def test_a_field_is_read_or_not_there(api: str, name: str):
    path, value = FIELDS[api, name], [2] if name == "accepted" else 2
    assert getattr(answered(api, path, value), name) == ((2,) if name == "accepted" else 2)
    for end in range(len(path)):
        assert getattr(answered(api, path[: end + 1], None), name) is None
    assert getattr(answered(api, ("other",), 1), name) is None


@pytest.mark.parametrize(("api", "name"), FIELDS)
def test_what_is_there_in_another_form_is_named(api: str, name: str):
    path, is_list = FIELDS[api, name], name == "accepted"
    allowed = "a list of whole numbers, each 0 or more" if is_list else "a whole number, 0 or more"
    for value in [*STRANGE, *([one] for one in STRANGE)]:
        with pytest.raises(AnswerError) as caught:
            answered(api, path, value)
        where = f"http://here{DIALECTS[api].path} answered {'.'.join(path)}"
        assert str(caught.value) == f"{where} {value!r}: expected {allowed}"
    if len(path) > 1:
        with pytest.raises(AnswerError, match=rf"answered {path[0]} 'off': expected an object with \w+, or none"):
            answered(api, path[:1], "off")


def test_a_long_value_is_cut():
    with pytest.raises(AnswerError) as caught:
        answered("vllm", FIELDS["vllm", "accepted"], [0.5] * 1000)
    assert len(str(caught.value)) < 250


def test_counters_are_whole_numbers():
    name = "vllm:spec_decode_num_drafts_total"
    text = (
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 1.0\nvllm:spec_decode_num_drafts_created 1.5'
    )
    for value, number in (("3", 3), ("3.0", 3), ("1.5e+06", 1_500_000)):
        assert accepted_between({}, counts_in(f"{name} {value}\n{text}")) == (number, (1,))
    for value in ("2.5", "NaN", "+Inf", "-1.0", "1.2.3"):
        with pytest.raises(AnswerError) as caught:
            counts_in(f"{name} {value}\n{text}")
        said = f"/metrics answered spec_decode_num_drafts {value}: expected a whole number, 0 or more"
        assert str(caught.value) == said
