"""Requests to a server, with the standard library; what goes wrong is said in one line."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from draftproof.properties.lib.errors import ConditionError

_LONGEST = 200


class ServerError(ConditionError):
    """A server that is not there, refuses, stops mid-way, or answers what is of no use; the message says which."""


class AnswerError(ServerError):
    """An answer of a server with a field that is not what it must be; the message names it, and what is allowed."""


class Server:
    """A server at `url`; each answer may take `timeout` seconds."""

    def __init__(self, url: str, timeout: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise ServerError(f"invalid --url {url!r}: expected http://HOST:PORT or https://HOST")
        self.url, self._timeout = url.rstrip("/"), timeout

    def get(self, path: str) -> str:
        """Return the text at a path. Raises ServerError."""
        return self._read(urllib.request.Request(self.url + path), path).decode(errors="replace")

    def get_json(self, path: str) -> Any:
        """Return the JSON at a path. Raises ServerError."""
        return self._parsed(self.get(path), path)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Return the JSON that a path answers to a body with. Raises ServerError."""
        request = urllib.request.Request(
            self.url + path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        return self._parsed(self._read(request, path).decode(errors="replace"), path)

    def _read(self, request: urllib.request.Request, path: str) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:_LONGEST]
            raise ServerError(f"{self.url}{path} answered {error.code}: {' '.join(said.split())}") from None
        except TimeoutError:
            raise ServerError(
                f"{self.url}{path} did not answer within {self._timeout:g} s; --set timeout=SECONDS gives it longer"
            ) from None
        except (http.client.HTTPException, ConnectionError) as error:
            raise ServerError(f"{self.url}{path} stopped mid-way: {type(error).__name__}: {error}") from None
        except urllib.error.URLError as error:
            raise ServerError(
                f"invalid --url {self.url!r}: expected a server that answers there, not {error.reason}"
            ) from None

    def _parsed(self, text: str, path: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            raise ServerError(
                f"{self.url}{path} answered what is no JSON: {' '.join(text[:_LONGEST].split())!r}"
            ) from None
