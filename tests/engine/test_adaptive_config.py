"""The config files of both step-count controllers: what they may say, and how a wrong one is refused."""

import json
from pathlib import Path

import pytest

from draftproof.engine.adaptive import AdaptiveConfig
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig, SlotConfig
from draftproof.engine.adaptive_config import AdaptiveError, read_adaptive_config


def written(path: Path, text: str) -> Path:
    file = path / "adaptive.json"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_config_file_may_be_empty_or_name_every_field(tmp_path: Path) -> None:
    assert read_adaptive_config(written(tmp_path, "{}"), 3) == AdaptiveConfig(3, (1, 3, 7), 0.2, 5, 10, -0.25, 0.0)
    text = json.dumps(
        {
            "candidate_steps": [4, 2, 4],
            "ema_alpha": 1,
            "update_interval": 2,
            "warmup_batches": 0,
            "down_hysteresis": -1,
            "up_hysteresis": 0.5,
        }
    )
    read = read_adaptive_config(str(written(tmp_path, text)), 3)
    assert read == AdaptiveConfig(3, (2, 4), 1.0, 2, 0, -1.0, 0.5)
    assert read.steps == (2, 3, 4)
    assert all(type(value) is float for value in (read.alpha, read.down, read.up))


FIELDS = "candidate_steps, ema_alpha, update_interval, warmup_batches, down_hysteresis, up_hysteresis"
STEPS, ALPHA, HYSTERESIS = (
    "a list of one or more integers 1 .. 64",
    "a number above 0, at most 1",
    "a number -64.0 .. 64.0",
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"steps": [1]}', f"invalid field steps = [1]: expected one of {FIELDS}"),
        ('{"candidate_steps": []}', f"invalid candidate_steps []: expected {STEPS}"),
        ('{"candidate_steps": 3}', f"invalid candidate_steps 3: expected {STEPS}"),
        ('{"candidate_steps": [1, 0]}', f"invalid candidate_steps [1, 0]: expected {STEPS}"),
        ('{"candidate_steps": [true]}', f"invalid candidate_steps [true]: expected {STEPS}"),
        ('{"candidate_steps": [1.0]}', f"invalid candidate_steps [1.0]: expected {STEPS}"),
        ('{"candidate_steps": [65]}', f"invalid candidate_steps [65]: expected {STEPS}"),
        ('{"candidate_steps": null}', f"invalid candidate_steps null: expected {STEPS}"),
        ('{"ema_alpha": true}', f"invalid ema_alpha true: expected {ALPHA}"),
        ('{"ema_alpha": "0.2"}', f'invalid ema_alpha "0.2": expected {ALPHA}'),
        ('{"ema_alpha": NaN}', f"invalid ema_alpha NaN: expected {ALPHA}"),
        ('{"ema_alpha": 1e999}', f"invalid ema_alpha Infinity: expected {ALPHA}"),
        ('{"ema_alpha": 0}', f"invalid ema_alpha 0: expected {ALPHA}"),
        ('{"ema_alpha": 1.0001}', f"invalid ema_alpha 1.0001: expected {ALPHA}"),
        ('{"update_interval": 0}', "invalid update_interval 0: expected an integer, 1 or more"),
        ('{"update_interval": 5.0}', "invalid update_interval 5.0: expected an integer, 1 or more"),
        ('{"update_interval": true}', "invalid update_interval true: expected an integer, 1 or more"),
        ('{"warmup_batches": -1}', "invalid warmup_batches -1: expected an integer, 0 or more"),
        ('{"warmup_batches": false}', "invalid warmup_batches false: expected an integer, 0 or more"),
        ('{"down_hysteresis": NaN}', f"invalid down_hysteresis NaN: expected {HYSTERESIS}"),
        ('{"down_hysteresis": -Infinity}', f"invalid down_hysteresis -Infinity: expected {HYSTERESIS}"),
        ('{"up_hysteresis": 64.5}', f"invalid up_hysteresis 64.5: expected {HYSTERESIS}"),
        ('{"up_hysteresis": [0]}', f"invalid up_hysteresis [0]: expected {HYSTERESIS}"),
        ('{"up_hysteresis": 1' + "0" * 400 + "}", f"invalid up_hysteresis 1{'0' * 56}...: expected {HYSTERESIS}"),
        ('{"ema_alpha": 1, "ema_alpha": 1}', ": expected a JSON object, but field ema_alpha is given 2 times"),
        ("[1, 3]", f" [1, 3]: expected a JSON object with fields {FIELDS}, or with slots"),
        ('{"ema_alpha": 0.2', ": expected a JSON object, but Expecting ',' delimiter: line 1 column 18 (char 17)"),
        ("", ": expected a JSON object, but Expecting value: line 1 column 1 (char 0)"),
        ("[" * 200_000, ": expected a JSON object, but "),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_field_and_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(AdaptiveError) as caught:
        read_adaptive_config(file, 3)
    message = str(caught.value)
    assert message.startswith(f"invalid {file}{said}" if said[0] in " :" else f"{file}: {said}")


def test_a_file_that_is_missing_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdaptiveError, match=r"none\.json: expected a JSON file, but No such file or directory"):
        read_adaptive_config(tmp_path / "none.json", 3)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(AdaptiveError, match=r"bytes\.json: expected a JSON object, but 'utf-8' codec"):
        read_adaptive_config(tmp_path / "bytes.json", 3)


@pytest.mark.parametrize("initial", [0, -1, 65, True, 3.0, None])
def test_a_bad_initial_step_count_is_refused(tmp_path: Path, initial: int) -> None:
    with pytest.raises(
        AdaptiveError, match=r"adaptive\.json: invalid initial step count .*: expected an integer 1 \.\. 64"
    ):
        read_adaptive_config(written(tmp_path, "{}"), initial)


def test_slots_take_what_stands_beside_them(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "strategy": "ema",
            "ema_alpha": 0.5,
            "warmup_batches": 0,
            "candidate_steps": [9],
            "down_hysteresis": 0,
            "8": {"candidate_steps": [3, 0, 1, 3], "up_hysteresis": 0.5, "ceiling_coeff": 2},
            "1": {"candidate_steps": [5], "down_hysteresis": -1},
        }
    )
    slots = (SlotConfig(1, (5,), down=-1.0), SlotConfig(8, (0, 1, 3), down=0.0, up=0.5, ceiling=2.0))
    read = read_adaptive_config(written(tmp_path, text), 0)
    assert read == BatchAdaptiveConfig(0, slots, alpha=0.5, interval=5, warmup=0)
    assert read.steps == (0, 1, 3, 5)
    same = {"candidate_steps": [1], "update_interval": 2}
    read = read_adaptive_config(written(tmp_path, json.dumps({"1": same, "4": same})), 3)
    assert read == BatchAdaptiveConfig(3, (SlotConfig(1, (1,)), SlotConfig(4, (1,))), interval=2)


SLOT_FIELDS = f"{FIELDS}, ceiling_coeff"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"1": 3}', "slot 1: invalid value 3: expected an object with candidate_steps"),
        ('{"1": {}}', "slot 1: invalid value {}: expected an object with candidate_steps"),
        (
            '{"1": {"candidate_steps": []}}',
            f"slot 1: invalid candidate_steps []: expected {STEPS.replace('1 ..', '0 ..')}",
        ),
        (
            '{"1": {"candidate_steps": [1], "steps": 1}}',
            f"slot 1: invalid field steps = 1: expected one of {SLOT_FIELDS}",
        ),
        ('{"0": {"candidate_steps": [1]}}', "invalid slot 0: expected batch sizes from 1 on, each once"),
        (
            '{"1": {"candidate_steps": [1]}, "01": {"candidate_steps": [1]}}',
            "invalid slot 01: expected batch sizes from 1 on, each once",
        ),
        (
            '{"1": {"candidate_steps": [1], "ceiling_coeff": -1}}',
            "slot 1: invalid ceiling_coeff -1: expected a number 0 .. 64.0 (0: none)",
        ),
        (
            '{"1": {"candidate_steps": [1], "ema_alpha": 0.5}, "4": {"candidate_steps": [1]}}',
            "invalid ema_alpha: expected one value for all slots",
        ),
        (
            '{"1": {"candidate_steps": [1]}, "strategy": "throughput_aware"}',
            'invalid strategy "throughput_aware": expected "ema"',
        ),
    ],
)
def test_a_bad_slot_is_refused_with_its_number(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(AdaptiveError) as caught:
        read_adaptive_config(file, 3)
    assert str(caught.value) == f"{file}: {said}"


def test_an_initial_count_of_none_is_for_slots(tmp_path: Path) -> None:
    slots = written(tmp_path, '{"1": {"candidate_steps": [0, 1]}}')
    assert read_adaptive_config(slots, 0).initial == 0
    with pytest.raises(AdaptiveError, match=r"invalid initial step count -1: expected an integer 0 \.\. 64"):
        read_adaptive_config(slots, -1)
