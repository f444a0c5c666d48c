"""A server that decodes a tiny checkpoint with transformers, and can be told to do it badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

LOCK = threading.Lock()
"""Requests come from several threads at once; the model is one."""


@cache
def greedy(path: str, prompt: tuple[int, ...], most: int, stops: tuple[int, ...]) -> tuple[int, ...]:
    """Return plain greedy decoding, one token at a time, without a cache."""
    model = load(path)
    text: tuple[int, ...] = ()
    while len(text) < most and not set(text[-1:]) & set(stops):
        with torch.no_grad():
            text += (int(model(torch.tensor([[*prompt, *text]])).logits[0, -1].argmax()),)
    return text


@cache
def load(path: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)


def counted(done: int) -> str:
    """What /metrics says after so many requests: each had a round of three drafts, two of them right."""
    per_place = "".join(
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{place}"}} {done * (place < 2)}.0\n'
        for place in range(3)
    )
    return (
        "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.\n"
        f'vllm:spec_decode_num_drafts_total{{engine="0"}} {done}.0\n'
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {3 * done}.0\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {2 * done}.0\n{per_place}'
    )


class Handler(BaseHTTPRequestHandler):
    """Speaks as vLLM, llama.cpp and SGLang do."""

    server: FakeServer

    def do_GET(self) -> None:
        if self.path == "/metrics" and not self.server.does("no metrics"):
            self._say(counted(self.server.done).encode())
        elif self.path == "/version":
            self._say(b'{"version": "0.0-fake"}')
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        params = body.get("sampling_params", body)
        prompt = tuple(body.get("prompt", body.get("input_ids")))
        most = next(params[name] for name in ("max_tokens", "n_predict", "max_new_tokens") if name in params)
        with LOCK:
            # SGLang ends at no token at all with ignore_eos, llama.cpp at none but its own.
            stops = () if self.path == "/generate" and params["ignore_eos"] else params.get("stop_token_ids", ())
            text = greedy(self.server.checkpoint, prompt, most, tuple(stops))
            self.server.done += 1
        if self.server.does("wrong token"):
            text = (*text[:-1], (text[-1] + 1) % 50)
        if self.server.does("short"):
            text = text[:-1]
        if self.server.does("refuses"):
            self.send_error(400, "prompt too long")
        else:
            self._say(b"<html>" if self.server.does("no JSON") else json.dumps(self._answer(text)).encode())

    def _answer(self, text: tuple[int, ...]) -> dict[str, Any]:
        if self.server.does("text only"):
            return {"choices": [{"text": "hello"}]}
        if self.server.does("tells rounds"):
            seen = {"per_step_accepted": [1] * (len(text) // 2), "per_step_drafted": [3] * (len(text) // 2)}
            return {"choices": [{"token_ids": text}], "metrics": {"speculative_decoding": seen}}
        return {
            "/v1/completions": {"choices": [{"text": "", "token_ids": text, "stop_reason": None}]},
            "/completion": {"content": "", "tokens": text},
            "/generate": {
                "output_ids": text,
                "meta_info": {"finish_reason": {"type": "length"}, "spec_verify_ct": len(text) - 1},
            },
        }[self.path]

    def _say(self, data: bytes) -> None:
        self.send_response(200)
        cut = self.server.does("stops mid-way") and self.command == "POST"
        self.send_header("Content-Length", str(len(data) + 100 * cut))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class FakeServer(ThreadingHTTPServer):
    """Serves `checkpoint`; `does` names what it does wrong."""

    # As many requests as a scenario has may come at once.
    request_queue_size = 128

    def __init__(self, checkpoint: Path, wrong: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.checkpoint, self.done, self._wrong = str(checkpoint), 0, wrong

    def does(self, what: str) -> bool:
        return self._wrong == what

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(checkpoint: Path, wrong: str = "") -> Iterator[FakeServer]:
    """Serve in a thread meanwhile."""
    with FakeServer(checkpoint, wrong) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
