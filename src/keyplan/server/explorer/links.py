"""Where each page is: the permalinks. Bytes stand in them in hexadecimal digits, fields of keys as words."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, urlencode

__all__ = ["BASE", "WHOLE_STORE", "AreaLinks", "find_link", "overview_link"]

BASE: Final = "/explore"

WHOLE_STORE: Final = "-"
"""The name of the area that is the whole store; no key space can be called so."""


def overview_link(page: str = "") -> str:
    """The first page."""
    return _with_query(f"{BASE}/", [("page", page)])


def find_link(text: str, *, is_hex: bool, area: str = WHOLE_STORE) -> str:
    """The search for a raw key."""
    return _with_query(f"{BASE}/find", [("key", text), ("as", "hex" if is_hex else ""), ("area", area)])


class AreaLinks:
    """The pages of one area: the whole store, or a key space."""

    def __init__(self, area: str) -> None:
        self._root = f"{BASE}/in/{quote(area, safe='')}/"

    @property
    def area(self) -> str:
        """The area's own page."""
        return self._root

    def tree(
        self,
        layout: str,
        item: str,
        words: Sequence[str] = (),
        *,
        starts_with: str = "",
        page: str = "",
        limit: str = "",
    ) -> str:
        """The values of the field after `words`."""
        return self._of_item(
            "tree", layout, item, words, [("starts_with", starts_with), ("page", page), ("limit", limit)]
        )

    def entries(
        self,
        layout: str,
        item: str,
        words: Sequence[str] = (),
        *,
        starts_with: str = "",
        page: str = "",
        limit: str = "",
    ) -> str:
        """The records, or index entries, whose first fields are `words`."""
        return self._of_item(
            "list", layout, item, words, [("starts_with", starts_with), ("page", page), ("limit", limit)]
        )

    def report(self, layout: str, *, page: str = "") -> str:
        """The report of a layout."""
        return _with_query(f"{self._root}report/{quote(layout, safe='')}", [("page", page)])

    def live(self, layout: str, item: str, words: Sequence[str] = ()) -> str:
        """The page of live changes."""
        return self._of_item("live", layout, item, words, [])

    def changes(self, layout: str, item: str, words: Sequence[str] = (), *, after: str = "") -> str:
        """The stream of changes, behind a token."""
        return self._of_item("changes", layout, item, words, [("after", after)])

    def key(self, raw_key: bytes) -> str:
        """The page of a raw key."""
        return f"{self._root}key?hex={raw_key.hex()}"

    def reveal(self, layout: str, raw_key: bytes) -> str:
        """Where the secrets of a record are asked for, by POST."""
        return f"{self._root}reveal/{quote(layout, safe='')}?hex={raw_key.hex()}"

    def raw(self, prefix: bytes = b"", *, page: str = "", limit: str = "") -> str:
        """The raw keys below a prefix."""
        return _with_query(f"{self._root}raw", [("hex", prefix.hex()), ("page", page), ("limit", limit)])

    def raw_live(self, prefix: bytes = b"") -> str:
        """The page of live changes of raw keys."""
        return _with_query(f"{self._root}live", [("hex", prefix.hex())])

    def raw_changes(self, prefix: bytes = b"", *, after: str = "") -> str:
        """The stream of changes of raw keys, behind a revision."""
        return _with_query(f"{self._root}changes", [("hex", prefix.hex()), ("after", after)])

    def _of_item(
        self, view: str, layout: str, item: str, words: Sequence[str], options: Sequence[tuple[str, str]]
    ) -> str:
        path = f"{self._root}{view}/{quote(layout, safe='')}/{quote(item, safe='')}"
        return _with_query(path, options, [("field", word) for word in words])


def _with_query(path: str, options: Sequence[tuple[str, str]], always: Sequence[tuple[str, str]] = ()) -> str:
    """The path with those options that say something, behind those that stand in any case."""
    query = urlencode([*always, *((name, value) for name, value in options if value)])
    return f"{path}?{query}" if query else path
