"""What every draft has to report, written out by hand: channels and keys, without slots, which the reference lacks."""

from draftproof.properties.values.drafts import DRAFT_KINDS, Mtp, Ngram, algorithm
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import RoundScript
from draftproof.properties.values.trace import Key, Trace
from draftproof.reference.drafts.base import Said

STEPS = ("draft.step.ids", "draft.step.positions", "draft.step.proposal")
BLOCK = ("draft.block.ids", "draft.block.positions", "draft.block.visible", "draft.block.proposal")
ENTRIES = ("extend.ids", "extend.positions", "extend.hidden_in", "extend.kv")
_TOLD = {
    "eagle": {*STEPS, "draft.step.hidden_in", *ENTRIES, "extend.proposal"},
    "mtp": {*ENTRIES, "extend.proposal"},
    "dflash": {*BLOCK, "extend.positions", "extend.hidden_in", "extend.kv"},
    "ngram": {"propose.match"},
    "standalone": {*STEPS, "extend.ids", "extend.positions", "extend.kv"},
    "eagle3": {*STEPS, "draft.step.hidden_in", *ENTRIES, "extend.proposal"},
}
# Of a draft that has no row, what its kind says; slots are the subject's.
TOLD = {
    kind.name: _TOLD.get(kind.name, {channel for channel in kind.tapped if not channel.endswith(".slots")})
    for kind in DRAFT_KINDS
}


def brute_match(tokens: tuple[int, ...], draft: Ngram) -> tuple[int, int]:
    """All lengths, all ends: the longest, and of its ends the last; or the first, as the highest of their negatives."""
    sign = 1 if draft.match == "latest" else -1
    found = [
        (length, sign * (end + 1))
        for length in range(draft.min_n, draft.max_n + 1)
        for end in range(length - 1, len(tokens) - 1)
        if tokens[end - length + 1 : end + 1] == tokens[len(tokens) - length :]
    ]
    length, place = max(found, default=(0, -sign))
    return length, sign * place


def found(made: Scenario, tokens: tuple[int, ...], count: int) -> int:
    """How many drafts there are where `count` may be."""
    if not isinstance(made.draft, Ngram):
        return count
    length, place = brute_match(tokens, made.draft)
    return min(count, len(tokens) - place) if length else 0


def draft_keys(made: Scenario, index: int, number: int, round_: RoundScript) -> list[tuple[str, Key]]:
    """Of a round's proposal."""
    kind, k = algorithm(made.draft), round_.drafts
    keys = [("propose.tokens", Key(index, number)), ("round.drafts", Key(index, number))]
    if kind in ("eagle", "standalone", "eagle3"):
        steps = range(1, k + (kind == "standalone"))
        names = [*STEPS] + ["draft.step.hidden_in"] * (kind != "standalone")
        keys += [(name, Key(index, number, step=step)) for name in names for step in steps]
    if kind == "dflash" and k:
        keys += [(name, Key(index, number, row=row)) for name in BLOCK for row in range(k + 1)]
    if kind == "ngram":
        keys.append(("propose.match", Key(index, number)))
    return keys


def extend_keys(made: Scenario, index: int, number: int, positions: range) -> list[tuple[str, Key]]:
    """Of the extend behind a commit of these positions."""
    kind = algorithm(made.draft)
    own = made.draft.layers if kind in ("mtp", "dflash", "standalone") else 1
    if isinstance(made.draft, Mtp):
        positions = range(max(0, positions.start - own + 1), positions.stop)
    keys = []
    for name in sorted(name for name in TOLD[kind] if name.startswith("extend.")):
        layers = range(own if kind == "mtp" or name == "extend.kv" else 1)
        rows = (-1,) if name == "extend.proposal" else positions
        keys += [(name, Key(index, number, layer=layer, row=row)) for layer in layers for row in rows]
    return keys


class Told:
    """One request's observations of one round."""

    def __init__(self, trace: Trace, round_: int) -> None:
        self._trace, self.round = trace, round_

    def __call__(self, channel: str, **key: int) -> object:
        return self._trace.channel(channel)[Key(0, self.round, **key)]

    def rows(self, channel: str, field: str, **where: int) -> dict[int, object]:
        found = self._trace.of(channel, request=0, round=self.round, **where)
        return {getattr(key, field): value for key, value in found}


def by_place(told: tuple[Said, ...]) -> dict[tuple[str, int, int, int], object]:
    """By (channel, step, layer, row), each of them said once."""
    places = {(one.channel, one.step, one.layer, one.row): one.value for one in told}
    assert len(places) == len(told)
    return places
