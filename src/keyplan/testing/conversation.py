"""The commands of a `.kpt` script that talks to a store through one layout.

    insert|put|update TABLE KEY... [RECORD] [lease=NAME]     delete TABLE KEY...      rename TABLE KEY... to KEY...
    get TABLE KEY...     list TABLE|INDEX [PREFIX...]        one INDEX KEY...         next COUNTER [COUNT]
    lease NAME           revoke NAME                         raw

Keys are words spelled as in the raw key, records are spelled as they are stored. `explain` before a write shows the commit
that it would make; `explain` or `commit` alone on the first line takes the indented lines below it as one transaction.
"""

from collections.abc import Callable, Mapping
from typing import Any

from keyplan.engine import ALL_KEYS, NO_LEASE, Lease
from keyplan.errors import KeyplanError
from keyplan.layout import BoundIndex, BoundTable, Layout, shown_key
from keyplan.store import Store

__all__ = ["StoreConversation"]


class StoreConversation:
    """Answers the commands of a script; an error of keyplan is an answer, too. One conversation for each script."""

    def __init__(self, store: Store, layout: type[Layout]) -> None:
        self._store = store
        self._layout = layout
        self._bound = layout.bound()
        self._leases: dict[str, Lease] = {}
        self._commands: Mapping[str, Callable[[Layout, list[str]], str]] = {
            "insert": self._insert,
            "put": self._put,
            "update": self._update,
            "delete": self._delete,
            "rename": self._rename,
            "get": self._get,
            "list": self._list,
            "one": self._one,
            "next": self._next,
            "lease": self._lease,
            "revoke": self._revoke,
            "raw": self._raw,
        }

    def __call__(self, command: str) -> str:
        """Return the answer to one command."""
        first, *lines = command.split("\n")
        verb, _, rest = first.partition(" ")
        try:
            if verb == "explain":
                work = lines or [rest]
                return str(self._store.explain(lambda tx: self._all(self._layout(tx), work)))
            if verb == "commit":
                with self._layout(self._store).transaction() as bound:
                    self._all(bound, lines)
                return f"revision {bound.revision}"
            return self._answer(self._layout(self._store), first)
        except KeyplanError as error:
            return f"{type(error).__name__}: {error}"

    def _all(self, bound: Layout, lines: list[str]) -> None:
        for line in lines:
            self._answer(bound, line.strip())

    def _answer(self, bound: Layout, line: str) -> str:
        verb, *words = _words(line)
        return self._commands[verb](bound, words)

    # ---- writes ----------------------------------------------------------------------------------------------------------

    def _insert(self, bound: Layout, words: list[str]) -> str:
        name, key, record, lease = self._record(words)
        return f"revision {bound.view(name).insert(key, record, lease=lease)}"

    def _put(self, bound: Layout, words: list[str]) -> str:
        name, key, record, lease = self._record(words)
        return f"revision {bound.view(name).put(key, record, lease=lease)}"

    def _update(self, bound: Layout, words: list[str]) -> str:
        name, key, record, _ = self._record(words)
        return f"revision {bound.view(name).update(key, record)}"

    def _delete(self, bound: Layout, words: list[str]) -> str:
        return f"revision {bound.view(words[0]).delete(self._key(self._bound.table(words[0]), words[1:]))}"

    def _rename(self, bound: Layout, words: list[str]) -> str:
        table, place = self._bound.table(words[0]), words.index("to")
        old, new = self._key(table, words[1:place]), self._key(table, words[place + 1 :])
        return f"revision {bound.view(table.name).rename(old, new)}"

    def _record(self, words: list[str]) -> tuple[str, object, object, int]:
        """The table's name, the key, the record and the lease in the words of a write."""
        table = self._bound.table(words[0])
        count = 1 + len(table.keys.template.fields)
        lease, raw = NO_LEASE, ""
        for word in words[count:]:
            if word.startswith("lease="):
                lease = self._leases[word.removeprefix("lease=")].id
            else:
                raw = word
        return table.name, self._key(table, words[1:count]), table.form.decode(raw.encode()), lease

    # ---- reads -----------------------------------------------------------------------------------------------------------

    def _get(self, bound: Layout, words: list[str]) -> str:
        table = self._bound.table(words[0])
        record = bound.view(words[0]).get(self._key(table, words[1:]))
        return "nothing" if record is None else table.form.encode(record).decode()

    def _list(self, bound: Layout, words: list[str]) -> str:
        item: BoundTable | BoundIndex = self._bound.indexes.get(words[0]) or self._bound.table(words[0])
        elements = [field.element for field in item.keys.template.fields]
        prefix = [element.decode(word.encode()) for element, word in zip(elements, words[1:], strict=False)]
        table = item.table if isinstance(item, BoundIndex) else item
        found: Any = bound.view(words[0]).list(*prefix)
        lines = [
            f"{', '.join(map(str, table.keys.shape.split(key)))}  {table.form.encode(record).decode()}".rstrip()
            for key, record in found
        ]
        return "\n".join(lines) or "nothing"

    def _one(self, bound: Layout, words: list[str]) -> str:
        index = self._bound.indexes[words[0]]
        key = bound.view(words[0]).key_of(self._key(index, words[1:]))
        return "nothing" if key is None else ", ".join(map(str, index.table.keys.shape.split(key)))

    def _next(self, bound: Layout, words: list[str]) -> str:
        return str(bound.view(words[0]).next(*map(int, words[1:])))

    def _raw(self, _bound: Layout, _words: list[str]) -> str:
        with self._store.engine.snapshot() as snapshot:
            lines = [f"{shown_key(entry.key)}  {shown_key(entry.value)}".rstrip() for entry in snapshot.scan(ALL_KEYS)]
        return "\n".join(lines) or "nothing"

    # ---- leases ----------------------------------------------------------------------------------------------------------

    def _lease(self, _bound: Layout, words: list[str]) -> str:
        self._leases[words[0]] = self._store.engine.lease(3600)
        return "granted"

    def _revoke(self, _bound: Layout, words: list[str]) -> str:
        self._leases[words[0]].revoke()
        return "revoked"

    # ---- words -----------------------------------------------------------------------------------------------------------

    def _key(self, item: BoundTable | BoundIndex, words: list[str]) -> object:
        fields = item.keys.template.fields
        values = [field.element.decode(word.encode()) for field, word in zip(fields, words, strict=True)]
        return values[0] if item.keys.shape.is_scalar else item.keys.shape.make(*values)


def _words(line: str) -> list[str]:
    """Split at spaces; a JSON record, from its first brace to the last, is one word."""
    start, end = line.find("{"), line.rfind("}") + 1
    if start < 0 or end <= start:
        return line.split()
    return [*line[:start].split(), line[start:end], *line[end:].split()]
