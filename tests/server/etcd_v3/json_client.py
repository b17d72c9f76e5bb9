"""A client of the JSON gateway for tests: base64 and lines, nothing more."""

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from queue import Queue
from typing import Any, Final, Self

import httpx

__all__ = ["JsonClient", "WatchLines", "b64"]

_SECONDS_MAX: Final = 45.0


def b64(text: str) -> str:
    """Bytes as the protocol wants them."""
    return b64encode(text.encode()).decode()


class JsonClient:
    """Calls on one address."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        headers = {"authorization": token} if token else {}
        self._http = httpx.Client(base_url=url, timeout=_SECONDS_MAX, headers=headers)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return status and body."""
        answer = self._http.post(path, content=json.dumps(body))
        return answer.status_code, answer.json()

    def call(self, path: str, body: dict[str, Any]) -> Any:
        """Return the body of an answer that must be a success."""
        status, answer = self.post(path, body)
        assert status == 200, answer
        return answer

    def put(self, key: str, value: str, **more: Any) -> Any:
        """Write."""
        return self.call("/v3/kv/put", {"key": b64(key), "value": b64(value), **more})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._http.close()


class WatchLines:
    """A watch that is read in a thread: `next()` waits for a line."""

    def __init__(self, url: str, request: dict[str, Any], *, token: str | None = None) -> None:
        self._lines: Queue[Any] = Queue()
        self._http = httpx.Client(
            base_url=url,
            timeout=httpx.Timeout(_SECONDS_MAX, read=None),
            headers={"authorization": token} if token else {},
        )
        self._request = self._http.build_request("POST", "/v3/watch", content=json.dumps({"create_request": request}))
        self._response = self._http.send(self._request, stream=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._response.iter_lines():
                if line:
                    self._lines.put(json.loads(line))
        except (httpx.HTTPError, httpx.StreamError, OSError):
            pass
        self._lines.put(None)

    def next(self) -> Any:
        """Return the next line, None at the end."""
        return self._lines.get(timeout=_SECONDS_MAX)

    def events(self, count: int) -> list[Any]:
        """Return so many events, whatever lines they come in."""
        found: list[Any] = []
        while len(found) < count:
            line = self.next()
            assert line is not None, found
            found += line["result"].get("events", [])
        return found

    def close(self) -> None:
        """Go away."""
        self._response.close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def lines_of(text: str) -> Iterator[Any]:
    """The lines of an answer."""
    return (json.loads(line) for line in text.splitlines() if line)
