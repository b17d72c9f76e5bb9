"""A walk through a table by pages while others write, next to a dictionary."""

from dataclasses import dataclass, field

from tests.model.dictionary import Dictionary, raw_key
from tests.store.layouts import Blade, BladeKey, Site

__all__ = ["Walk"]


@dataclass
class Walk:
    """The pages of the blades of one rack, or of all, on every store alike.

    `standing` are the records that were there when it began and were not written since; `seen` is what the pages showed.
    """

    rack: str | None
    begin_revision: int
    standing: dict[BladeKey, Blade]
    tokens: list[str]
    seen: list[tuple[BladeKey, Blade]] = field(default_factory=list)
    is_over: bool = False

    @classmethod
    def begin(cls, rack: str | None, model: Dictionary, stores: int) -> "Walk":
        """Begin it; the first page is read later."""
        return cls(rack, len(model.revisions), dict(_listed(model, rack)), [""] * stores)

    def turn(self, sites: list[Site], limit: int, model: Dictionary) -> None:
        """Read the next page: the first records of the list as it is now that lie behind the last one seen."""
        last = raw_key(self.seen[-1][0]) if self.seen else b""
        rest = [(key, blade) for key, blade in _listed(model, self.rack) if raw_key(key) > last]
        prefix = () if self.rack is None else (self.rack,)
        for number, site in enumerate(sites):
            page = site.blades.page(*prefix, limit=limit, token=self.tokens[number])
            assert page.records == rest[:limit]
            assert bool(page.next_token) == (len(rest) > limit)
            self.tokens[number] = page.next_token
        self.seen += rest[:limit]
        if len(rest) <= limit:
            self._end(model)

    def _end(self, model: Dictionary) -> None:
        self.is_over = True
        written = {change.key for revision in model.revisions[self.begin_revision :] for change in revision}
        standing = [(key, blade) for key, blade in self.standing.items() if key not in written]
        assert [item for item in self.seen if item[0] not in written] == standing
        keys = [raw_key(key) for key, _ in self.seen]
        assert keys == sorted(set(keys))


def _listed(model: Dictionary, rack: str | None) -> list[tuple[BladeKey, Blade]]:
    return [(key, blade) for key, blade in model.blades() if rack is None or key.rack == rack]
