"""Values that hold whole keys, rewritten when their store or key space comes to lie below another prefix.

Which fields do so, the layout declares: `Table(..., holds_keys=("next", "children"))`.
"""

from collections.abc import Iterable, Iterator

from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.layout import BoundLayout, Kind, rewrite_embedded_keys

__all__ = ["EmbeddedKeys"]


class EmbeddedKeys:
    """Rewrites the keys in the values of one layout from an old prefix to a new one. `count`: of values that were changed.

    Keys of pairs are without the prefix. `root_below` is what the layout knows them with: nothing in a key space, whose prefix
    no layout sees.
    """

    def __init__(self, layout: BoundLayout, old: bytes, new: bytes, *, root_below: bytes = b"") -> None:
        self._layout = layout
        self._root_below = root_below
        self._old = old
        self._new = new
        self._is_needed = old != new and any(table.spec.holds_keys for table in layout.tables.values())
        self.count = 0

    def rewritten(self, pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs, with the keys in values below the new prefix.

        A key in a value that does not begin with the old prefix is of somebody else, and stays. Raises InvalidInputError for a
        value that cannot be read, or not be written again as it was.
        """
        if not self._is_needed:
            yield from pairs
            return
        for key, value in pairs:
            changed = self._changed(key, value)
            self.count += changed != value
            yield key, changed

    def _changed(self, key: bytes, value: bytes) -> bytes:
        meaning = self._layout.meaning(self._root_below + key)
        if meaning.kind is not Kind.RECORD:
            return value
        table = self._layout.tables[str(meaning.item)]
        if not table.spec.holds_keys:
            return value
        try:
            return rewrite_embedded_keys(table.spec, value, self._moved)
        except CorruptionError as error:
            problem = f"the keys in a value cannot be rewritten: {error.facts.get('problem')}"
            raise InvalidInputError(source=table.name, problem=problem, raw_key=key.hex()) from error

    def _moved(self, key: bytes) -> bytes:
        return self._new + key[len(self._old) :] if key.startswith(self._old) else key
