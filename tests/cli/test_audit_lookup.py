"""Audits of drafts that look tokens up: another setting is told apart from a mistake."""

from pathlib import Path

from tests.cli.test_audit import PROMPTS, Files


def test_a_log_with_another_longest_suffix_is_no_mistake_of_another_name(tmp_path: Path):
    files = Files(tmp_path)
    log = files.folder / "shorter.jsonl"
    prompts = files.write("many.jsonl", [{"prompt": [*one, *one[:2], one[-1]]} for one in PROMPTS * 4])
    ran = ("--prompts", prompts, "--tokens", 40, "--steps", 3, "--save-log", log, "--max-n", 1)
    assert files.audit(*ran, "--subject", "draftproof:EngineSubject")[0] == 0
    code, report = files.audit("--log", log)
    assert code != 0
    assert "explained by: another --max-n: the longest suffix has two tokens less" in report["says"]
    assert files.audit("--log", log, "--max-n", 1)[0] == 0
