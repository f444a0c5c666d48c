"""`draftproof tracer sensitivity`: a table of how soon mistakes show, by the oracle alone."""

from pathlib import Path

from draftproof.cli.app import run


def test_each_kind_of_program_has_a_table_and_each_mistake_a_row(tmp_path: Path):
    out = tmp_path / "page.md"
    assert run(["tracer", "sensitivity", "--cases", "1", "--out", str(out)]) == 0
    tables = out.read_text().split("\n## ")[1:]
    heads, standalone, hybrid = ([line.split(" | ") for line in one.splitlines() if line[:2] == "| "] for one in tables)
    assert [one.splitlines()[0] for one in tables] == [
        "llama, qwen3, glm4-moe, deepseek-v3",
        "llama, qwen3, glm4-moe, deepseek-v3, with a standalone draft",
        "qwen3-next, qwen3.5",
    ]
    named = [{row[0].removeprefix("| ") for row in rows[1:]} for rows in (heads, standalone, hybrid)]
    assert "draft positions and slots one ahead" in named[0] - named[1]
    assert "rejected draft kept in the draft's cache, what follows one place further" in named[1] - named[0]
    assert "state not rolled back" in named[2] - named[0]
    assert not named[0] & named[1]
    sure = next(row for row in heads if row[0] == "| positions of decoded tokens one ahead")
    assert sure[3] == "100"
