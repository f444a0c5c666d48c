"""The loggers of examples/ write what `draftproof judge` and `draftproof audit` read; those that can be run here, run.

DRAFTPROOF_MLX=ENV/bin/python pytest tests/test_loggers.py  # also mlx-lm's
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.app import run
from tests.checkpoints import VOCAB, tiny_llama
from tests.warm import Warm

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LOGGERS = EXAMPLES / "loggers"
MLX = os.environ.get("DRAFTPROOF_MLX", "")
NEEDS_MLX = pytest.mark.skipif(not MLX, reason="needs DRAFTPROOF_MLX, a Python with mlx-lm")
ABSENT = {
    "loggers/log_mlx_lm": "mlx",
    "loggers/log_sglang": "sglang",
    "loggers/log_transformers": "transformers",
    "loggers/log_vllm": "vllm",
    "mlx_lm_engine": "mlx",
    "openvino_genai_engine": "openvino",
}


@pytest.mark.parametrize("name", ABSENT)
def test_an_example_says_in_a_sentence_what_it_lacks(name: str, tmp_path: Path, warm: Warm):
    code = f"import sys, runpy; sys.modules[{ABSENT[name]!r}] = None; runpy.run_path({str(EXAMPLES / name)!r} + '.py')"
    given = [str(tmp_path), "prompts.jsonl", "log.jsonl", str(tmp_path)] if "log_" in name else []
    (tmp_path / "prompts.jsonl").write_text('{"prompt": [5, 1, 9]}\n')
    done = warm.run([sys.executable, "-P", "-c", code, *given], tmp_path)
    assert done.returncode == 1
    assert ": this example " in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("path", sorted(LOGGERS.glob("*.py")), ids=lambda path: path.stem)
def test_a_logger_says_its_usage_before_it_imports_an_engine(path: Path, tmp_path: Path, warm: Warm):
    done = warm.run([sys.executable, "-P", str(path)], tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(rf"usage: python {path.name} [^\n]+ PROMPTS.jsonl LOG.jsonl[^\n]*\n", done.stderr)
    if path.stem == "log_llama_cpp":
        return
    done = warm.run([sys.executable, "-P", str(path), "no/target", "prompts.jsonl", "log.jsonl", "{}"], tmp_path)
    assert done.returncode == 2
    assert done.stderr == "invalid TARGET 'no/target': expected the directory of a checkpoint\n"


@pytest.mark.parametrize("lines", [None, '{"prompt": [5]}\n{', '{"max_tokens": 9}', "[5, 1, 9]"])
@pytest.mark.parametrize("path", sorted(LOGGERS.glob("*.py")), ids=lambda path: path.stem)
def test_a_logger_refuses_prompts_that_it_cannot_read(path: Path, lines: str | None, tmp_path: Path, warm: Warm):
    if lines is not None:
        (tmp_path / "prompts.jsonl").write_text(lines)
    given = [str(tmp_path), "prompts.jsonl", "log.jsonl", str(tmp_path)]
    given = ["http://localhost:1", "server.log", *given[1:3]] if path.stem == "log_llama_cpp" else given
    done = warm.run([sys.executable, "-P", str(path), *given], tmp_path)
    assert done.returncode == 2
    said = """invalid PROMPTS 'prompts.jsonl': expected lines such as {"prompt": [5, 1, 9]}, got """
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft and prompts; some texts end at a stop token."""
    made = tmp_path_factory.mktemp("logged")
    tiny_llama(made / "target")
    tiny_llama(made / "draft", seed=1)
    prompts = [[(5 * i + j * j + 1) % VOCAB for j in range(4 + i % 3)] for i in range(6)]
    lines = [{"prompt": prompt, "max_tokens": 9, "stop": [i] if i % 3 else []} for i, prompt in enumerate(prompts)]
    (made / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return made


@pytest.mark.parametrize(
    ("name", "python", "draft"),
    [
        ("log_transformers", sys.executable, "ngram"),
        ("log_transformers", sys.executable, "standalone"),
        pytest.param("log_mlx_lm", MLX, "standalone", marks=NEEDS_MLX),
    ],
)
def test_what_an_engine_logs_is_right(
    name: str, python: str, draft: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    of = [str(folder / "draft")] if draft == "standalone" else []
    words = [str(LOGGERS / f"{name}.py"), str(folder / "target"), str(folder / "prompts.jsonl")]
    words += [str(tmp_path / "log.jsonl"), *of]
    if python == sys.executable:
        # This process has imported transformers already.
        monkeypatch.setattr(sys, "argv", words)
        runpy.run_path(words[0], run_name="__main__")
    else:
        subprocess.run([python, "-P", *words], check=True, capture_output=True)
    options = ["--model", str(folder / "target"), "--draft", draft, *(["--draft-model", *of] if of else [])]
    options += ["--max-n", "2"] if draft == "ngram" else []
    assert run(["judge", str(tmp_path / "log.jsonl"), *options]) == 0
    assert run(["audit", "--log", str(tmp_path / "log.jsonl"), *options]) in (0, 125)  # so few drafts are right


SERVER_LOG = """
D slot launch_slot_: id  0 | task -1 | launching slot : {"id":0}
D ubatch_print:     0: id =      7 (  w7 ), pos =    0, n_seq_id =  1, seq_id = [0], output = 0
D slot process_toke: id  0 | task 0 | n_gen = 1, n_remaining = 3, next token:    17 'w17 '
D slot handle_last_: id  0 | task 0 | generate_draft: id=17, #tokens=1, #draft=2, pos_next=1
D ubatch_print:     0: id =     17 ( w17 ), pos =    1, n_seq_id =  1, seq_id = [0], output = 1
D ubatch_print:     1: id =     48 ( w48 ), pos =    2, n_seq_id =  1, seq_id = [0], output = 1
D ubatch_print:     2: id =     62 ( w62 ), pos =    3, n_seq_id =  1, seq_id = [0], output = 1
D ubatch_print:     0: id =     17 ( w17 ), pos =    1, n_seq_id =  1, seq_id = [0], output = 1
D ubatch_print:     1: id =     48 ( w48 ), pos =    2, n_seq_id =  1, seq_id = [0], output = 1
D slot process_toke: id  0 | task 0 | n_gen = 2, n_remaining = 2, next token:    48 'w48 '
D slot process_toke: id  0 | task 0 | n_gen = 3, n_remaining = 1, next token:    30 'w30 '
D slot handle_last_: id  0 | task 0 | slot decode token, id=30, n_ctx = 512, n_tokens = 3, truncated = 0
D slot process_toke: id  0 | task 0 | n_gen = 4, n_remaining = 0, next token:    32 'w32 '
"""


class Completions(BaseHTTPRequestHandler):
    """A llama-server that answers, and says of the log no more."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"tokens_predicted": 4}')

    def log_message(self, *_: object) -> None:
        pass


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


ROUNDS = [
    {"drafts": [], "emitted": [17]},
    {"drafts": [48, 62], "emitted": [48, 30]},
    {"drafts": [], "emitted": [32]},
]


def test_rounds_are_read_off_the_log_of_llama_cpp(tmp_path: Path, warm: Warm):
    (tmp_path / "server.log").write_text(SERVER_LOG)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": [7], "max_tokens": 4}\n')
    log = tmp_path / "log.jsonl"
    with HTTPServer(("127.0.0.1", 0), Completions) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = [
            f"http://127.0.0.1:{server.server_port}",
            str(tmp_path / "server.log"),
            str(tmp_path / "prompts.jsonl"),
        ]
        done = warm.run([sys.executable, "-P", str(LOGGERS / "log_llama_cpp.py"), *words, str(log)], tmp_path)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    request, *rounds = read(log)
    assert request == {"request": 0, "prompt": [7], "max_tokens": 4}
    assert rounds == [{"request": 0, "round": number, **one} for number, one in enumerate(ROUNDS)]


SGLANG = {
    "sglang/__init__.py": """
from types import SimpleNamespace as Of
from sglang.srt.speculative import eagle_worker_common as common

class Rows(list):
    def reshape(self, count, _):
        return Of(tolist=lambda: [self[i::count] for i in range(count)])

class Engine:
    def __init__(self, **given):
        assert given["speculative_num_draft_tokens"] == 3
    def generate(self, input_ids, sampling_params, rid):
        mode, lens = Of(is_idle=lambda: False), Of(tolist=lambda: [common.KEPT.pop(0)])
        for drafts in ([17, 48, 62], [30, 5, 6], [32, 1, 1]):
            common.eagle_sample(Of(draft_token=Rows(drafts)), Of(reqs=[Of(rid=rid[0])], forward_mode=mode), lens)
        return [{"output_ids": [17, 48, 30, 32]}]
    def shutdown(self):
        pass
""",
    "sglang/srt/__init__.py": "",
    "sglang/srt/speculative/__init__.py": "",
    "sglang/srt/speculative/eagle_worker_common.py": """
KEPT = [2, 1, 1]  # the last round was planned before the end was known
def eagle_sample(verify, batch, lens):
    return None, lens, None
""",
    "sglang/srt/speculative/ngram_worker.py": "eagle_sample = None",
}


def test_rounds_are_what_sglang_verifies(tmp_path: Path, warm: Warm):
    """On a stand-in that calls what SGLang 0.5.23 calls: the logger has not met an SGLang."""
    for name, text in SGLANG.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": [7], "max_tokens": 4}\n')
    words = [
        str(tmp_path),
        str(tmp_path / "prompts.jsonl"),
        str(tmp_path / "log.jsonl"),
        '{"speculative_num_draft_tokens": 3}',
    ]
    command = [sys.executable, "-P", str(LOGGERS / "log_sglang.py"), *words]
    assert warm.run(command, tmp_path, PYTHONPATH=str(tmp_path)).returncode == 0
    _, *rounds = read(tmp_path / "log.jsonl")
    assert [(one["drafts"], one["emitted"]) for one in rounds] == [([], [17]), ([48, 62], [48, 30]), ([5, 6], [32])]
