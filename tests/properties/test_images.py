"""Three positions a token: those of prompts with images, and the delta behind them (S-MROPE)."""

import pytest
from msgspec.structs import replace

from draftproof.engine.rope import prompt_positions
from draftproof.engine.stages import ImageSpan
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import validate
from draftproof.properties.values.scenario import Image, Scenario, delta_of
from draftproof.reference.memo import Memo
from draftproof.reference.mrope import RopePlaces
from draftproof.reference.probe.target import ReferenceProbeTarget
from tests.properties.facts import names_of
from tests.properties.ideal import IdealSubject
from tests.properties.test_windows import SCENARIO

SQUARE = Image(start=1, frames=1, height=2, width=2)
DOT = Image(start=5, frames=1, height=1, width=1)
FIRST, SECOND = SCENARIO.requests
SCENE = replace(
    SCENARIO,
    model=replace(SCENARIO.model, mrope=True),
    requests=(replace(FIRST, images=(SQUARE,)), SECOND),
)
# An image of frames, then text, as `get_rope_index` of transformers' Qwen2-VL places them.
FILM = (Image(start=2, frames=2, height=2, width=3), Image(start=15, frames=1, height=2, width=2))
PLACED = [
    *((place,) * 3 for place in (0, 1)),
    *((2 + frame, 2 + row, 2 + column) for frame in (0, 1) for row in (0, 1) for column in (0, 1, 2)),
    (5, 5, 5),
    *((6, 6 + row, 6 + column) for row in (0, 1) for column in (0, 1)),
    (8, 8, 8),
]


def test_positions_of_a_prompt_by_both_sides() -> None:
    spans = [ImageSpan(one.start, one.frames, one.height, one.width) for one in FILM]
    known, delta = prompt_positions(len(PLACED), spans)
    assert known == PLACED
    assert delta == delta_of(len(PLACED), FILM) == -11
    places = RopePlaces(len(PLACED), FILM)
    assert [tuple(row) for row in places.rows(0, len(PLACED) + 2).tolist()] == [*PLACED, (9,) * 3, (10,) * 3]


@pytest.mark.parametrize("subject", [EngineSubject(device="cpu"), IdealSubject()])
def test_images_pass(subject: EngineSubject | IdealSubject) -> None:
    ran = evidence(subject, SCENE)
    assert judge(ran).passed
    counted = counts(ran)
    assert [name for name in names_of("mrope") if not counted[name]] == ["mrope_prompts_of_several_images"]
    two = evidence(subject, validate(replace(SCENE, requests=(replace(FIRST, images=(SQUARE, DOT)), SECOND))))
    assert judge(two).passed
    assert counts(two)["mrope_prompts_of_several_images"] == 1


def test_images_change_states_and_not_the_carry() -> None:
    target = ReferenceProbeTarget(SCENE.model, Memo())
    text, seen = target.forward(FIRST.prompt), target.placed(RopePlaces(7, (SQUARE,))).forward(FIRST.prompt)
    assert (text.hidden[:2] == seen.hidden[:2]).all(), "the first token of an image lies as one of a text"
    assert (text.hidden[2:, 1:] != seen.hidden[2:, 1:]).any(axis=1).all()
    assert (text.hidden[:, 0] == seen.hidden[:, 0]).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (replace(SCENE, model=replace(SCENE.model, mrope=False)), r"requests\[0\].images 1 of them: expected none but"),
        (
            replace(SCENE, requests=(replace(FIRST, images=(SQUARE, replace(SQUARE, start=4))), SECOND)),
            r"invalid requests\[0\].images\[1\] 4 .. 7: expected within the prompt's 7 tokens, behind .*from 5 on",
        ),
        (
            replace(SCENE, requests=(FIRST, replace(SECOND, images=(SQUARE,)))),
            r"invalid requests\[1\].images\[0\] 1 .. 4: expected within the prompt's 3 tokens",
        ),
    ],
)
def test_bad_input(changed: Scenario, message: str) -> None:
    with pytest.raises(InvalidScenarioError, match=message):
        validate(changed)
