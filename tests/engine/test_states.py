"""Both ways to keep recurrent states beside the definition of the layer, over rounds of every kind, bit for bit.

`W` verify width, `T` tokens, `L` layers, `C` conv width, `Q` channels, `U` value heads, `H` key size, `E` value size.
"""

import pytest
import torch

from draftproof.engine.models.base import PrefillStates, RecurrentWeights, StateShape, VerifyStates
from draftproof.engine.states.checkpoints import LogicalStates, StateCheckpoints, checkpoint_shapes
from draftproof.engine.states.replay import Replay
from draftproof.engine.states.snapshot import Snapshot
from draftproof.reference import ops

SHAPE = StateShape(1, 2, 3, 4, 3, 2, torch.int64, torch.int64)
SLOTS, ROWS, STEPS = 5, 3, 4
POISON = 0x7FF8DEAD7FF8DEAD
KINDS = {"snapshot": Snapshot, "replay": Replay}
Tokens = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def numbers(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(1 << 63), (1 << 63) - 1, shape, generator=generator)


def weights_of(layer: int) -> RecurrentWeights:
    shapes = {
        "conv": (SHAPE.channels, SHAPE.conv),
        "a_log": (SHAPE.value_heads,),
        "dt_bias": (SHAPE.value_heads,),
        "start_conv": (SHAPE.conv - 1, SHAPE.channels),
        "start_ssm": (SHAPE.value_heads, SHAPE.key_dim, SHAPE.value_dim),
    }
    made = {name: numbers(100 * layer + i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    return RecurrentWeights(**made)


WEIGHTS = tuple(weights_of(layer) for layer in range(SHAPE.layers))


class Text:
    """The inputs x, a, b of a request's tokens, and by definition the output and the state after each of them."""

    def __init__(self, seed: int, length: int = 40) -> None:
        shapes = ((SHAPE.channels,), (SHAPE.value_heads,), (SHAPE.value_heads,))
        self.inputs: tuple[Tokens, ...] = tuple(
            tuple(numbers(seed + 10 * layer + i, length, *shape) for i, shape in enumerate(shapes))  # type: ignore[misc]
            for layer in range(SHAPE.layers)
        )
        self.outputs, self.windows, self.matrices = zip(*map(self._defined, range(SHAPE.layers)), strict=True)

    def _defined(self, layer: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        weights, (x, a, b) = WEIGHTS[layer], self.inputs[layer]
        assert weights.start_conv is not None
        assert weights.start_ssm is not None
        row = torch.zeros(1, dtype=torch.int64)
        qkv, windows = torch.empty_like(x), torch.empty((1, len(x), SHAPE.conv - 1, SHAPE.channels), dtype=torch.int64)
        ops.conv_verify(qkv[None], windows, x[None], weights.start_conv[None], weights.conv, row)
        matrix = weights.start_ssm.shape
        out = torch.empty((1, len(x), SHAPE.value_heads, SHAPE.value_dim), dtype=torch.int64)
        states = torch.empty((1, len(x), *matrix), dtype=torch.int64)
        gates = (a[None], b[None], weights.a_log, weights.dt_bias)
        ops.gdn_verify(out, states, qkv[None], *gates, weights.start_ssm[None], row)
        return out[0], windows[0], states[0]

    def after(self, count: int) -> LogicalStates:
        """The state after the first `count` tokens: conv [L, C-1, Q] and ssm [L, U, H, E]."""
        windows = torch.stack([of_layer[count - 1] for of_layer in self.windows])
        return windows, torch.stack([of_layer[count - 1] for of_layer in self.matrices])


ANA, BEN, EVE = Text(1000), Text(2000), Text(3000)


class Serving:
    """A memory of states, and who owns its slots: a text and the number of tokens committed."""

    def __init__(self, kind: str) -> None:
        made = KINDS[kind].shapes(SHAPE, SLOTS, ROWS, STEPS) | checkpoint_shapes(SHAPE, SLOTS)
        pools = {name: torch.full(shape, POISON, dtype=dtype) for name, (shape, dtype) in made.items()}
        self.states = KINDS[kind](pools)
        self.owned: dict[int, tuple[Text, int]] = {}

    def prefill(self, counts: dict[int, int], fresh: dict[int, Text] | None = None, keep: int = -1) -> None:
        """slot -> tokens of its chunk; slots of `fresh` begin with a text. Step `keep` of each chunk is kept."""
        fresh = fresh or {}
        self.owned |= {slot: (text, 0) for slot, text in fresh.items()}
        slots, spans = torch.tensor(list(counts)), [(*self.owned[slot], count) for slot, count in counts.items()]
        starts = torch.tensor([0, *counts.values()]).cumsum(0)
        keeps = torch.full_like(slots, keep)
        chunks = PrefillStates(slots, starts, torch.tensor(list(fresh), dtype=torch.int64), slots, keeps)
        self.states.begin(chunks.new_slots)
        for layer, weights in enumerate(WEIGHTS):
            x, a, b = (
                torch.cat([text.inputs[layer][part][n : n + count] for text, n, count in spans]) for part in range(3)
            )
            out = self.states.prefill(layer, weights, x, a, b, chunks)
            assert torch.equal(out, torch.cat([text.outputs[layer][n : n + count] for text, n, count in spans]))
        for slot, (text, n, count) in zip(counts, spans, strict=True):
            self.owned[slot] = text, n + count

    def round(self, width: int, accepted: dict[int, int], keep: int = -1) -> None:
        """Verify slots at a width, in a batch with padding; then commit `accepted` tokens of each, 0 for none."""
        slots = [*accepted, *[0] * (ROWS - len(accepted))]
        for layer, weights in enumerate(WEIGHTS):
            inputs = [torch.cat([self._next(slot, layer, width)[part] for slot in slots]) for part in range(3)]
            out = self.states.verify(layer, weights, *inputs, VerifyStates(torch.tensor(slots), width))
            for row, slot in enumerate(accepted):
                text, n = self.owned[slot]
                assert torch.equal(out[row * width :][:width], text.outputs[layer][n : n + width]), (slot, layer)
        live = torch.tensor(list(accepted))
        self.states.commit(live, torch.tensor([count - 1 for count in accepted.values()]))
        for slot, count in accepted.items():
            self.owned[slot] = self.owned[slot][0], self.owned[slot][1] + count
        self.states.checkpoint(live, torch.tensor([min(keep, count - 1) for count in accepted.values()]))

    def tree(self, slot: int, parents: list[int], path: list[int], count: int, keep: int = -1) -> None:
        """Verify a tree of a slot, beside padding, in which rows `path` are the text's; commit the first `count`."""
        width, (text, n) = len(parents) + 1, self.owned[slot]
        slots, walked = torch.tensor([slot, 0]), torch.full((2, width), -1)
        walked[0, : len(path)] = torch.tensor(path)
        tree = VerifyStates(slots, width, torch.tensor([parents, [0] * len(parents)]))
        for layer, weights in enumerate(WEIGHTS):
            own = [part[n : n + len(path)] for part in text.inputs[layer]]
            inputs = [
                numbers(7 + layer, 2 * width, part.shape[1]).index_put((walked[0, : len(path)],), part) for part in own
            ]
            out = self.states.verify(layer, weights, *inputs, tree)
            assert torch.equal(out[path], text.outputs[layer][n : n + len(path)])
        steps = self.states.keep_path(slots, walked)
        self.states.commit(slots[:1], steps[0, count - 1 : count])
        self.owned[slot] = text, n + count
        self.states.checkpoint(slots[:1], torch.tensor([-1]) if keep < 0 else steps[0, keep : keep + 1])

    def _next(self, slot: int, layer: int, width: int) -> Tokens:
        if slot:
            text, n = self.owned[slot]
            x, a, b = (part[n : n + width] for part in text.inputs[layer])
            return x, a, b
        return (
            torch.zeros((width, SHAPE.channels), dtype=torch.int64),
            *(torch.zeros((width, SHAPE.value_heads), dtype=torch.int64) for _ in range(2)),
        )  # type: ignore[return-value]

    def right(self) -> bool:
        """Whether the logical state of every slot is that of its text."""
        slots = torch.tensor(list(self.owned))
        conv, ssm = self.states.logical_states(slots)
        for i, (text, n) in enumerate(self.owned.values()):
            window, matrix = text.after(n)
            if not (torch.equal(conv[:, i], window) and torch.equal(ssm[:, i], matrix)):
                return False
        return True

    def kept(self, slot: int) -> LogicalStates:
        return self.states.checkpoints.conv[:, slot], self.states.checkpoints.ssm[:, slot]


@pytest.fixture(params=KINDS)
def serving(request: pytest.FixtureRequest) -> Serving:
    return Serving(request.param)


def same(got: LogicalStates, expected: LogicalStates) -> bool:
    return all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def begun(serving: Serving) -> Serving:
    serving.prefill({3: 5, 1: 1}, {3: ANA, 1: BEN})
    return serving


def test_a_prompt_in_chunks_leaves_the_state_after_all_of_it(serving: Serving) -> None:
    begun(serving).prefill({1: 3, 3: 2})
    assert serving.right()
    assert [n for _, n in serving.owned.values()] == [7, 4]


def test_rounds_of_every_width_and_length_follow_the_definition(serving: Serving) -> None:
    begun(serving)
    for width, accepted in (
        (4, {3: 4, 1: 1}),
        (4, {1: 4, 3: 2}),
        (1, {3: 1, 1: 1}),
        (2, {3: 2}),
        (2, {1: 1, 3: 1}),
        (4, {3: 3, 1: 2}),
    ):
        serving.round(width, accepted)
        assert serving.right(), (width, accepted)


def test_a_round_of_which_nothing_is_committed_may_be_run_again(serving: Serving) -> None:
    begun(serving).round(3, {3: 0, 1: 2})
    assert serving.owned[3] == (ANA, 5)
    serving.round(3, {3: 2, 1: 1})
    assert serving.right()


def test_slots_outside_the_batch_keep_their_states(serving: Serving) -> None:
    begun(serving).round(4, {1: 2})
    for _ in range(3):
        serving.round(2, {3: 1})
    assert serving.right()
    assert serving.owned[1] == (BEN, 3)


def test_flush_changes_no_state_and_leaves_nothing_pending(serving: Serving) -> None:
    begun(serving).round(4, {3: 3, 1: 4})
    states = serving.states
    if isinstance(states, Replay):
        assert states.cursor[[3, 1], 0].tolist() == [3, 4]
        assert same(tuple(part[:, 0] for part in states.base(torch.tensor([3]))), ANA.after(5))  # type: ignore[arg-type]
    states.flush(torch.tensor([3]))
    assert serving.right()
    assert torch.equal(states.ssm[:, 3], ANA.after(8)[1])
    if isinstance(states, Replay):
        assert states.cursor[[3, 1], 0].tolist() == [0, 4]
        assert same(tuple(part[:, 0] for part in states.base(torch.tensor([3]))), ANA.after(8))  # type: ignore[arg-type]
    serving.round(4, {1: 2, 3: 2})
    assert serving.right()


def test_flushing_twice_is_flushing_once(serving: Serving) -> None:
    begun(serving).round(2, {3: 2, 1: 1})
    for _ in range(2):
        serving.states.flush(torch.tensor([1, 3]))
        assert serving.right()


def test_a_checkpoint_is_the_state_after_its_step_and_changes_no_other(serving: Serving) -> None:
    serving.prefill({3: 5, 1: 2}, {3: ANA, 1: BEN}, keep=1)
    assert same(serving.kept(3), ANA.after(2))
    serving.round(4, {3: 4, 1: 1}, keep=2)
    assert same(serving.kept(3), ANA.after(5 + 3))
    assert same(serving.kept(1), BEN.after(2 + 1))
    serving.round(4, {3: 2, 1: 1})
    assert same(serving.kept(3), ANA.after(5 + 3))
    assert bool((serving.states.checkpoints.ssm[:, 2] == POISON).all())
    assert serving.right()


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "left as it was"])
def test_a_request_in_a_slot_that_another_had_begins_anew(serving: Serving, flushed: bool) -> None:
    begun(serving).round(4, {3: 4, 1: 3})
    if flushed:
        serving.states.flush(torch.tensor([3]))
    serving.prefill({1: 2, 3: 1}, {1: EVE, 3: BEN})
    assert serving.right()
    serving.round(3, {3: 2, 1: 3})
    serving.round(1, {3: 1, 1: 1})
    assert serving.right()
    assert serving.owned == {3: (BEN, 4), 1: (EVE, 6)}


def test_padding_leaves_nothing_in_the_slots_of_requests(serving: Serving) -> None:
    begun(serving)
    before = serving.states.ssm.clone()
    serving.round(4, {3: 0})
    assert torch.equal(serving.states.ssm[:, 1:], before[:, 1:])
    assert bool((serving.states.ssm[:, [2, 4]] == POISON).all())


TREE_ROUNDS = (([0, 0, 2], [0, 2, 3], 3), ([0, 0, 1], [0, 1, 3], 2), ([0, 1, 0], [0, 3], 2), ([0, 0, 0], [0], 1))
"""Parents, the rows of a path, and how many of these are committed."""


def test_a_round_of_a_tree_commits_its_path(serving: Serving) -> None:
    begun(serving)
    for parents, path, count in TREE_ROUNDS:
        serving.tree(3, parents, path, count)
        assert serving.right(), (parents, path, count)
        serving.round(2, {3: 1, 1: 2})
        assert serving.right()


def test_a_checkpoint_of_a_tree_is_the_state_after_a_row_of_its_path(serving: Serving) -> None:
    begun(serving).tree(3, [0, 0, 2], [0, 2, 3], 3, keep=1)
    assert same(serving.kept(3), ANA.after(5 + 2))
    serving.states.flush(torch.tensor([3]))
    assert serving.right()


def test_both_ways_give_the_same_states_after_every_tree() -> None:
    both = [begun(Serving(kind)) for kind in KINDS]
    for parents, path, count in TREE_ROUNDS:
        for one in both:
            one.tree(1, parents, path, count)
        snapshot, replay = (one.states.logical_states(torch.tensor([1, 3])) for one in both)
        assert same(snapshot, replay)


def test_both_ways_give_the_same_states_after_every_round() -> None:
    both = [begun(Serving(kind)) for kind in KINDS]
    for width, accepted in ((4, {3: 4, 1: 2}), (1, {1: 1}), (3, {3: 1, 1: 3})):
        for one in both:
            one.round(width, accepted)
        snapshot, replay = (one.states.logical_states(torch.tensor([1, 3])) for one in both)
        assert same(snapshot, replay)


def test_with_two_turns_the_last_checkpoint_stays_while_the_next_is_made() -> None:
    pools = {"checkpoint.conv": torch.zeros(1, 8, 1, 1), "checkpoint.ssm": torch.zeros(1, 8, 1, 1, 1)}
    kept, slots = StateCheckpoints(pools, slots=3, turns=2), torch.tensor([2, 1])
    assert kept.places(slots).tolist() == [2, 1]
    assert kept.advance(slots, torch.tensor([0, -1])).tolist() == [7, 1], "a row without a step makes none"
    assert kept.advance(slots, torch.tensor([3, 3])).tolist() == [2, 6]
    kept.ssm[:, 2], kept.ssm[:, 6] = 20, 10
    kept.keep({3: 6, 4: 2})
    assert kept.ssm[0, :, 0, 0, 0].tolist() == [0, 0, 20, 10, 20, 0, 10, 0]
    kept.put(slots[1:], (torch.full((1, 1, 1, 1), 5.0), torch.full((1, 1, 1, 1, 1), 5.0)))
    assert kept.of(slots)[1].flatten().tolist() == [20, 5], "who begins in a slot has the first place"


def test_with_one_turn_a_checkpoint_takes_the_place_of_the_last() -> None:
    pools = {"checkpoint.conv": torch.zeros(1, 5, 1, 1), "checkpoint.ssm": torch.zeros(1, 5, 1, 1, 1)}
    assert StateCheckpoints(pools, slots=3).advance(torch.tensor([2]), torch.tensor([0])).tolist() == [2]
