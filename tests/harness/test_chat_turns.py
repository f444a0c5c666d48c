"""A chat's next turn: a prompt that goes on from another and its answer, and what a cache holds of these."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.harness.chat_turns import with_turns
from draftproof.properties.validate import validate
from draftproof.reference.solved import solved
from tests.harness.foreign import CHANNELS, Foreign
from tests.harness.test_foreign import CACHES, SCENARIO, SERIAL, failed

ODD = replace(SCENARIO.memory, page_seed=1, page_size=1, pages=3 * SCENARIO.memory.pages)
PLAIN = validate(replace(SCENARIO, memory=ODD))
CHAT = with_turns(PLAIN, CACHES)


def test_a_prompt_goes_on_from_another_and_its_answer() -> None:
    first, second = CHAT.requests
    answer = solved(PLAIN).script.requests[0].tokens
    assert second.prompt == first.prompt + answer + PLAIN.requests[1].prompt
    assert solved(CHAT).script.requests[0].tokens == answer
    assert with_turns(CHAT, CACHES) == CHAT


def test_others_stay_as_they_are() -> None:
    even = replace(PLAIN, memory=replace(ODD, page_seed=2))
    asked = tuple(replace(one, abort_at=9) for one in PLAIN.requests)
    assert with_turns(even, CACHES) == even
    assert with_turns(PLAIN, SERIAL) == PLAIN
    assert with_turns(replace(PLAIN, requests=asked), CACHES).requests == asked


def test_the_last_token_of_an_answer_is_in_no_cache() -> None:
    """The reference says how much a request committed, and so does the engine that ends at a token."""
    text = len(CHAT.requests[0].prompt) + len(solved(CHAT).script.requests[0].tokens)
    told = CHANNELS - {"round.table"}
    assert "schedule.cached" not in failed(Foreign(CACHES, cached=text - 1, only=told), CHAT)
    assert "schedule.cached" in failed(Foreign(CACHES, cached=text, only=told), CHAT)
