"""What a subject committed and emitted: context lengths and the text of each request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping

from draftproof.properties.evidence.schedule import ObservedSchedule
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Trace


def contexts(trace: Trace, script: Script, schedule: ObservedSchedule) -> Mapping[tuple[int, int], int]:
    """Return (request, round) -> n for every decode row: the length committed before, or that of the script."""
    lengths = trace.typed("commit.length", int)
    known: dict[tuple[int, int], int] = {}
    for request, number in schedule.decode_steps:
        rounds = script.requests[request].rounds
        solved = rounds[number - 1].context if 0 < number <= len(rounds) else 0
        known[request, number] = lengths.get(Key(request, number - 1), solved)
    return known


def emitted(trace: Trace) -> Mapping[int, TokenIds]:
    """Return request -> the tokens that it emitted over all its rounds; () for any other."""
    tokens: dict[int, TokenIds] = defaultdict(tuple)
    for key, of_round in sorted(trace.typed("accept.emitted", TokenIds).items()):
        tokens[key.request] += of_round
    return tokens


def output_changed(trace: Trace, script: Script, ties: Container[int]) -> bool:
    """Return whether the text of a request without a tie differs from plain greedy decoding.

    How rounds cut the text is no part of it: a bad draft is rejected, and then the same tokens take more rounds.
    """
    text = emitted(trace)
    return any(text[number] != solved.tokens for number, solved in enumerate(script.requests) if number not in ties)
