"""Engines that decode with a tracer checkpoint: transformers with a mistake in it, and a server in front of one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from draftproof.tracer.program import Program
from draftproof.tracer.sessions import Asked, Session, TracerAnswer
from draftproof.tracer.simulated import RIGHT, Drafting, EngineMistake, Neighbour, made, neighbours_of, simulated


class Stock:
    """Transformers' own decoding with a cache, one request at a time; `wrong` says what it does badly."""

    drafting = Drafting(0)

    def __init__(self, checkpoint: Path, dtype: str = "float32", wrong: str = "") -> None:
        self.name, self._wrong = f"transformers, {dtype}", wrong
        self._model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype))

    def serve(self, session: Session) -> list[TracerAnswer]:
        """Decode the waves in turn, each in lockstep."""
        found: dict[int, TracerAnswer] = {}
        for wave in session.waves:
            found.update(zip(wave, self._wave([session.requests[i] for i in wave]), strict=True))
        return [found[i] for i in range(len(session.requests))]

    def _wave(self, asked: Sequence[Asked]) -> list[TracerAnswer]:
        caches: list[Any] = [None] * len(asked)
        texts: list[list[int]] = [[] for _ in asked]
        for _ in range(max(one.count for one in asked)):
            chosen = [self._step(i, one, texts[i], caches) for i, one in enumerate(asked)]
            if self._wrong == "rows rotated":
                chosen = chosen[1:] + chosen[:1]
            for text, token in zip(texts, chosen, strict=True):
                text.append(token)
        return [TracerAnswer(tokens=one.cut(text)) for one, text in zip(asked, texts, strict=True)]

    def _step(self, number: int, asked: Asked, text: list[int], caches: list[Any]) -> int:
        given = text[-1:] if text else list(asked.prompt)
        if not text and self._wrong == "prompt truncated" and len(given) > 20:
            given = [given[0], *given[-19:]]
        start = caches[number].get_seq_length() if text else 0
        positions = torch.arange(start, start + len(given))[None]
        mask = None
        if text and self._wrong == "positions ahead":
            positions += 1
        if text and self._wrong == "entry missing":
            mask = torch.ones(1, start + 1, dtype=torch.long)
            mask[0, -2] = 0
        with torch.no_grad():
            out = self._model(
                torch.tensor([given]), past_key_values=caches[number], position_ids=positions, attention_mask=mask
            )
        caches[number] = out.past_key_values
        if self._wrong == "entry stale" and text:
            for layer in caches[number].layers:
                layer.values[:, :, -2] = layer.values[:, :, -3]
        return int(out.logits[0, -1].argmax())


class Oracle:
    """What the oracle says of a mistake, as an endpoint; a request's neighbours are served with it, too."""

    def __init__(self, program: Program, width: int, mistake: EngineMistake = RIGHT) -> None:
        self.name, self.drafting, self._program, self._mistake = "oracle", Drafting(width), program, mistake

    def serve(self, session: Session) -> list[TracerAnswer]:
        """Decode each request again while what its neighbour emits changes."""
        served = [self._answer(one, []) for one in session.requests]
        for _ in range(self._mistake.reads_other * max(one.count for one in session.requests)):
            before, near = served, [neighbours_of(session.requests, served, i) for i in range(len(served))]
            served = [self._answer(one, some) for one, some in zip(session.requests, near, strict=True)]
            if served == before:
                break
        return served

    def _answer(self, one: Asked, near: Sequence[Neighbour]) -> TracerAnswer:
        mistake = self._mistake if near or not self._mistake.reads_other else RIGHT
        rounds = simulated(self._program, one.prompt, self.drafting, mistake, next(iter(near), None))
        return made(one, rounds, told=self.drafting.width > 0)


TELLS: dict[str, Callable[[list[int]], Any]] = {
    "tells rounds": lambda steps: steps,
    "tells nothing": lambda steps: None,
    "tells of one token": lambda steps: None if steps else [],
    "tells fractions": lambda steps: [0.0 for _ in steps],
    "tells more than all": lambda steps: [*steps[:-1], *(99 for _ in steps[-1:])],
}
"""What is answered by round, of the accepted drafts of each, in place of counters."""


class _Handler(BaseHTTPRequestHandler):
    server: TracerServer

    def do_GET(self) -> None:
        tells = self.server.wrong in TELLS
        if self.path != "/metrics" or not self.server.endpoint.drafting.width or tells:
            self.send_error(404)
            return
        name = "vllm:spec_decode_num_"
        counts = "".join(
            f'{name}accepted_tokens_per_pos_total{{position="{place}"}} {count}\n'
            for place, count in enumerate(self.server.accepted_at)
        )
        self._say(f"{name}drafts_total {self.server.rounds}\n{counts}".encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions" or (self.server.wrong == "wants a name" and body.get("model") != "tracer"):
            self.send_error(404, "no such model")
            return
        asked = Asked(prompt=tuple(body["prompt"]), count=body["max_tokens"], stops=tuple(body["stop_token_ids"]))
        with self.server.lock:
            (served,) = self.server.endpoint.serve(Session(requests=(asked,)))
            for length in served.lengths or ():
                self.server.rounds += 1
                for place in range(length - 1):
                    self.server.accepted_at[place] += 1
        tokens = [token + 1000 for token in served.tokens] if self.server.wrong == "other ids" else served.tokens
        answer: dict[str, Any] = {"choices": [{"text": "", "token_ids": tokens}]}
        answer["usage"] = {"prompt_tokens": len(asked.prompt) + (self.server.wrong == "splits ids")}
        if self.server.wrong == "text only":
            del answer["choices"][0]["token_ids"]
        if self.server.wrong in TELLS:
            told = TELLS[self.server.wrong]([length - 1 for length in served.lengths or ()])
            answer["metrics"] = {"speculative_decoding": {"per_step_accepted": told}}
        self._say(json.dumps(answer).encode())

    def _say(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class TracerServer(ThreadingHTTPServer):
    """Speaks as vLLM does, in front of an endpoint; `wrong` names what it does badly."""

    def __init__(self, endpoint: Any, wrong: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint, self.wrong, self.lock = endpoint, wrong, threading.Lock()
        self.rounds, self.accepted_at = 0, [0] * endpoint.drafting.width


@contextmanager
def serving(endpoint: Any, wrong: str = "") -> Iterator[str]:
    """Serve in a thread meanwhile; the value is the address."""
    with TracerServer(endpoint, wrong) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
