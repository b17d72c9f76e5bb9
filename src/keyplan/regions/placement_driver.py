"""PD over HTTP: regions, splits, label rules and key spaces. What a plan says is carried out in apply.py.

Routes and their behaviour: PD's API v1 (`/pd/api/v1`), key spaces v2. The HTTP client httpx is imported when one is opened.
"""

import ssl
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from keyplan.engine import KeyRange
from keyplan.errors import EngineOpenError, EngineUnavailableError, InvalidInputError, PlacementDriverError
from keyplan.regions.captured import Region, Rule, page_token_of, parse_regions, parse_rules, parse_spaces, rule_data
from keyplan.regions.spaces import NumberedSpace

__all__ = ["PlacementDriver", "tls_context"]

_PAGE_REGIONS: Final = 1024
"""Why: PD takes at most 10,240; a page of 1,024 is half a MiB of JSON."""

_PAGE_SPACES: Final = 1000

_READ_SECONDS: Final = 30.0

_SPLIT_SECONDS: Final = 400.0
"""Why: PD polls each of five tries for up to a minute and sleeps in between before it answers."""

_V1: Final = "/pd/api/v1"
_V2: Final = "/pd/api/v2"


def tls_context(authority: str, certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Return what HTTPS to a PD with its own authority needs: file names in PEM. Raises EngineOpenError."""
    try:
        context = ssl.create_default_context(cafile=authority or None)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise EngineOpenError(url=authority or certificate, problem=f"cannot be used for TLS: {error}") from error
    return context


class PlacementDriver:
    """A PD by its address, `http://host:2379`. Close it, or use it in a `with` block.

    Every method raises EngineUnavailableError when PD cannot be reached, and PlacementDriverError for an answer other than what
    was asked for. Nothing is tried again here: of a split or a rule that was lost on the way, the next reading tells.
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None) -> None:
        try:
            self._httpx: Any = import_module("httpx")
        except ModuleNotFoundError as error:
            problem = "the package 'httpx' is not installed: pip install 'keyplan[server]'"
            raise EngineOpenError(url=url, problem=problem) from error
        if not url.startswith(("http://", "https://")):
            raise EngineOpenError(url=url, problem="PD's address begins with http:// or https://")
        self._url = url.rstrip("/")
        try:
            self._client: Any = self._httpx.Client(
                base_url=self._url, timeout=_READ_SECONDS, **({} if tls is None else {"verify": tls})
            )
        except self._httpx.InvalidURL as error:
            raise EngineOpenError(url=url, problem=str(error)) from error

    # ---- regions -----------------------------------------------------------------------------------------------------------

    def regions(self) -> list[Region]:
        """Return all regions, in key order, page by page from the first key to where there is no end."""
        regions: list[Region] = []
        key = b""
        while True:
            query = {"key": key.hex(), "end_key": "", "limit": str(_PAGE_REGIONS), "format": "hex"}
            page = parse_regions(self._get(f"{_V1}/regions/key", query), source=f"{_V1}/regions/key")
            # Trap: regions change between pages. What then overlaps or is missing is for the proof to tell.
            regions += page
            end = page[-1].range.end if page else None
            if end is None or end <= key:
                return regions
            key = end

    def range_holes(self) -> list[KeyRange]:
        """Return the ranges that PD knows no region of."""
        answer = self._json("GET", f"{_V1}/regions/range-holes")
        try:
            return [KeyRange(bytes.fromhex(start), bytes.fromhex(end) or None) for start, end in answer or []]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(source=f"{_V1}/regions/range-holes", problem="not pairs of keys") from error

    def split(self, keys: Sequence[bytes], *, retry_limit: int = 5) -> int:
        """Ask for splits at these keys and return the percentage that PD says was done.

        A hint only: it is cut to a whole number, and a key that is the start of a region already counts as not done. Read the
        regions again.
        """
        body = {"split_keys": [key.hex() for key in keys], "retry_limit": retry_limit}
        answer = self._json("POST", f"{_V1}/regions/split", body, seconds=_SPLIT_SECONDS)
        percentage = answer.get("processed-percentage") if isinstance(answer, Mapping) else None
        return percentage if isinstance(percentage, int) else 0

    def accelerate(self, ranges: Iterable[KeyRange]) -> None:
        """Let PD look at these ranges soon, rather than when its patrol comes by."""
        body = [{"start_key": pair.start.hex(), "end_key": (pair.end or b"").hex()} for pair in ranges]
        if body:
            self._request("POST", f"{_V1}/regions/accelerate-schedule/batch", body)

    # ---- label rules -------------------------------------------------------------------------------------------------------

    def rules(self) -> list[Rule]:
        """Return all region label rules."""
        route = f"{_V1}/config/region-label/rules"
        return parse_rules(self._get(route), source=route)

    def rule(self, rule_id: str) -> Rule | None:
        """Return one label rule; None when there is none."""
        response = self._send("GET", _rule_route(rule_id))
        if response.status_code == self._httpx.codes.NOT_FOUND:
            return None
        content = self._checked(response, "GET", _rule_route(rule_id))
        return parse_rules(b"[" + content + b"]", source=rule_id)[0]

    def delete_rule(self, rule_id: str) -> bool:
        """Delete one label rule; False when there is none."""
        response = self._send("DELETE", _rule_route(rule_id))
        if response.status_code == self._httpx.codes.NOT_FOUND:
            return False
        self._checked(response, "DELETE", _rule_route(rule_id))
        return True

    def patch_rules(self, *, to_set: Iterable[Rule], to_delete: Iterable[str]) -> None:
        """Delete and set label rules in one step; a rule that is in both is set."""
        body = {"sets": [rule_data(rule) for rule in to_set], "deletes": list(to_delete)}
        self._request("PATCH", f"{_V1}/config/region-label/rules", body)

    # ---- key spaces --------------------------------------------------------------------------------------------------------

    def spaces(self) -> list[NumberedSpace]:
        """Return the key spaces that PD keeps, in the order of their numbers."""
        spaces: list[NumberedSpace] = []
        route, token = f"{_V2}/keyspaces", ""
        while True:
            content = self._get(route, {"limit": str(_PAGE_SPACES), "page_token": token})
            spaces += [
                space for space in parse_spaces(content, source=route, is_page=True) if isinstance(space, NumberedSpace)
            ]
            following = page_token_of(content, source=route)
            if not following or following == token:
                return spaces
            token = following

    # ---- requests ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connections. Closing twice is harmless."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get(self, route: str, query: Mapping[str, str] | None = None) -> bytes:
        return self._checked(self._send("GET", route, query=query), "GET", route)

    def _request(self, method: str, route: str, body: object) -> bytes:
        return self._checked(self._send(method, route, body), method, route)

    def _json(
        self,
        method: str,
        route: str,
        body: object = None,
        *,
        seconds: float = _READ_SECONDS,
    ) -> Any:
        response = self._send(method, route, body, seconds=seconds)
        self._checked(response, method, route)
        try:
            return response.json()
        except ValueError as error:
            raise PlacementDriverError(
                route=f"{method} {route}", status=200, problem="the answer is not JSON"
            ) from error

    def _send(
        self,
        method: str,
        route: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float = _READ_SECONDS,
    ) -> Any:
        try:
            return self._client.request(
                method, route, params=query, timeout=seconds, **({} if body is None else {"json": body})
            )
        except self._httpx.HTTPError as error:
            problem = str(error) or type(error).__name__
            raise EngineUnavailableError(engine="pd", url=self._url, problem=problem) from error

    def _checked(self, response: Any, method: str, route: str) -> bytes:
        if not response.is_success:
            raise PlacementDriverError(
                route=f"{method} {route}", status=response.status_code, problem=response.text.strip().strip('"')[:500]
            )
        content: bytes = response.content
        return content


def _rule_route(rule_id: str) -> str:
    # Trap: an id holds slashes, which must not be read as parts of the path.
    return f"{_V1}/config/region-label/rule/{quote(rule_id, safe='')}"
