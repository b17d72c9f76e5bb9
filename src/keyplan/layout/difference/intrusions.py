"""Keys of the new layout at which something else stood in the old one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final

from keyplan.layout.difference.change import Impact, LayoutChange
from keyplan.layout.difference.pairing import LayoutPairs, literal_head, plain_shape
from keyplan.layout.rules.decision import key_below
from keyplan.layout.spec import ItemSpec
from keyplan.layout.template import Template

__all__ = ["intrusions"]

_BY_HEAD: Final = itemgetter(0, 1)


def intrusions(pairs: LayoutPairs, roots: tuple[Template, Template]) -> Iterator[LayoutChange]:
    """Changes E19: keys of the new layout at which something else stood, so that old data would be taken for new."""
    twins = set(_twins(pairs, roots))
    olds = [(old, old.template.prefixed(roots[0])) for old in pairs.old.items if old.name not in twins]
    by_head = _ByHead(olds)
    for new in pairs.new.items:
        whole = new.template.prefixed(roots[1])
        for old, other in by_head.near(whole):
            if pairs.names.get(new.name) == old.name:
                continue
            answer = key_below(whole, None, other)
            if answer.key is not None or answer.is_open:
                message = f"a key of it was one of {old.name} in the old layout"
                if answer.is_open:
                    message = f"undecided whether {message}"
                advice = f"what is stored of {old.name} would be taken for it: spell its keys otherwise, or remove that first"
                yield LayoutChange("E19", new.name, Impact.BREAKING, message, advice, witness=answer.key)


class _ByHead:
    """Items by the literal that their keys begin with. Why: hundreds of tables are compared, and most begin differently."""

    def __init__(self, items: Iterable[tuple[ItemSpec, Template]]) -> None:
        ordered = sorted(
            ((literal_head(whole), place, item, whole) for place, (item, whole) in enumerate(items)), key=_BY_HEAD
        )
        self._heads = [head for head, *_ in ordered]
        self._items = [(place, item, whole) for _, place, item, whole in ordered]

    def near(self, whole: Template) -> Iterator[tuple[ItemSpec, Template]]:
        """Yield the items of which a key may be one of `whole`, in their order: one literal begins with the other."""
        head = literal_head(whole)
        found: list[tuple[int, ItemSpec, Template]] = []
        for size in range(len(head)):
            found += self._items[bisect_left(self._heads, head[:size]) : bisect_right(self._heads, head[:size])]
        place = bisect_left(self._heads, head)
        while place < len(self._heads) and self._heads[place].startswith(head):
            found.append(self._items[place])
            place += 1
        yield from ((item, other) for _, item, other in sorted(found, key=itemgetter(0)))


def _twins(pairs: LayoutPairs, roots: tuple[Template, Template]) -> Iterator[str]:
    """The old items that the new layout has at the same keys: a collision with one is the new layout's own, found by L1."""
    for new_name, old_name in pairs.names.items():
        before, after = pairs.old.item(old_name).template, pairs.new.item(new_name).template
        if plain_shape(before.prefixed(roots[0])) == plain_shape(after.prefixed(roots[1])):
            yield old_name
