"""A PD over real HTTP, as far as the planner meets it: regions that can be split, label rules, key spaces.

It behaves as PD's tests and public captures show: keys of regions in upper-case digits, /regions in no order, split keys that
are a region's start count as not done, deletes run before sets, bad rules and bad digits are refused, errors are JSON strings.
"""

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Bound = bytes | None


@dataclass
class Request:
    """What a client sent."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


@dataclass
class FakePd:
    """The state of the server. `refused` is how many split keys the next requests pass over, one number each."""

    regions: list[dict[str, Any]] = field(default_factory=list)
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    spaces: list[dict[str, Any]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    page_regions_max: int = 10_240
    failure: tuple[int, str] | None = None

    def put_regions(self, *bounds: str) -> None:
        """Regions between these bounds in hexadecimal digits, numbered from 10, shuffled."""
        self.regions = [
            {"id": 10 + place, "start_key": start, "end_key": end, "approximate_size": 1, "approximate_keys": 7}
            for place, (start, end) in enumerate(pairwise(bounds))
        ]
        random.Random(1).shuffle(self.regions)

    def sent(self, method: str, ending: str) -> list[Request]:
        return [found for found in self.requests if found.method == method and found.path.endswith(ending)]

    # ---- what it does --------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> tuple[int, Any]:  # noqa: PLR0911  # Why: a table of routes.
        self.requests.append(request)
        if self.failure is not None:
            return self.failure
        path = request.path
        match request.method, path:
            case "GET", "/pd/api/v1/regions":
                return 200, {"count": len(self.regions), "regions": self.regions}
            case "GET", "/pd/api/v1/regions/key":
                return self._regions_from(request.query)
            case "GET", "/pd/api/v1/regions/range-holes":
                return 200, self._holes()
            case "POST", "/pd/api/v1/regions/split":
                return self._split(request.body)
            case "POST", "/pd/api/v1/regions/accelerate-schedule/batch":
                return 200, "Accelerate regions scheduling in a given ranges"
            case "GET", "/pd/api/v1/config/region-label/rules":
                return 200, list(self.rules.values())
            case "PATCH", "/pd/api/v1/config/region-label/rules":
                return self._patch(request.body)
            case "GET", "/pd/api/v2/keyspaces":
                return self._spaces(request.query)
        prefix = "/pd/api/v1/config/region-label/rule/"
        if path.startswith(prefix) and "/" not in path.removeprefix(prefix):
            return self._rule(request.method, unquote(path.removeprefix(prefix)))
        return 404, "404 page not found"

    def _regions_from(self, query: dict[str, str]) -> tuple[int, Any]:
        if query.get("format") != "hex":
            return 400, "this fake reads hexadecimal digits alone"
        try:
            key, end_key = bytes.fromhex(query.get("key", "")), bytes.fromhex(query.get("end_key", ""))
        except ValueError:
            return 400, "encoding/hex: invalid byte: U+0069 'i'"
        limit = min(int(query.get("limit", "16")), self.page_regions_max)
        found = [
            region
            for region in self._sorted()
            if (not region["end_key"] or bytes.fromhex(region["end_key"]) > key)
            and (not end_key or bytes.fromhex(region["start_key"]) < end_key)
        ][:limit]
        return 200, {"count": len(found), "regions": found or None}

    def _sorted(self) -> list[dict[str, Any]]:
        return sorted(self.regions, key=lambda region: bytes.fromhex(region["start_key"]))

    def _holes(self) -> list[list[str]]:
        holes, reached = [], ""
        for region in self._sorted():
            if region["start_key"] != reached:
                holes.append([reached, region["start_key"]])
            reached = region["end_key"]
        return [*holes, [reached, ""]] if reached else holes

    def _split(self, body: Any) -> tuple[int, Any]:
        keys = body.get("split_keys") if isinstance(body, dict) else None
        if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
            return 400, "split_keys should be provided."
        try:
            raw = [bytes.fromhex(key) for key in keys]
        except ValueError:
            return 500, "encoding/hex: odd length hex string"
        passed_over = self.refused.pop(0) if self.refused else 0
        done = [self._split_at(key) for key in raw[: len(raw) - passed_over]]
        return 200, {"processed-percentage": 100 * sum(done) // len(raw), "regions-id": [11]}

    def _split_at(self, key: bytes) -> bool:
        for region in self.regions:
            start, end = bytes.fromhex(region["start_key"]), bytes.fromhex(region["end_key"]) or None
            if start < key and (end is None or key < end):
                number = max(other["id"] for other in self.regions) + 1
                self.regions.append({**region, "id": number, "start_key": key.hex().upper()})
                region["end_key"] = key.hex().upper()
                return True
        return False

    def _patch(self, body: Any) -> tuple[int, Any]:
        for rule in body["sets"]:
            problem = _problem(rule)
            if problem:
                return 400, problem
        for rule_id in body["deletes"]:
            self.rules.pop(rule_id, None)
        self.rules |= {rule["id"]: rule for rule in body["sets"]}
        return 200, "Update region label rules successfully."

    def _rule(self, method: str, rule_id: str) -> tuple[int, Any]:
        if rule_id not in self.rules:
            return 404, "region label rule not found"
        if method == "DELETE":
            del self.rules[rule_id]
            return 200, "Delete region label rule successfully."
        return 200, self.rules[rule_id]

    def _spaces(self, query: dict[str, str]) -> tuple[int, Any]:
        limit, start = int(query.get("limit") or 0), int(query.get("page_token") or 0)
        found = [space for space in self.spaces if space["id"] >= start]
        page = found[:limit] if limit else found
        token = str(found[limit]["id"]) if limit and len(found) > limit else ""
        return 200, {"keyspaces": page or None, "next_page_token": token}


def _problem(rule: dict[str, Any]) -> str:
    if not rule.get("id") or not rule.get("labels") or rule.get("rule_type") != "key-range" or not rule.get("data"):
        return "invalid rule content"
    for label in rule["labels"]:
        if not label["key"] or not label["value"]:
            return "invalid rule content: label"
    for pair in rule["data"]:
        try:
            start, end = bytes.fromhex(pair["start_key"]), bytes.fromhex(pair["end_key"])
        except ValueError:
            return "invalid rule content: hex"
        if end and end <= start:
            return "endKey should be greater than startKey"
    return ""


@contextmanager
def fake_pd() -> Iterator[FakePd]:
    """A server on a free port of the loopback address, until the block ends."""
    state = FakePd()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            status, answer = state.answer(Request(self.command, parts.path, query, json.loads(raw) if raw else None))
            body = json.dumps(answer, indent=2).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815  # Why: names of http.server.

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
