"""Lists, counts, pages, levels and watches of random small tables: exactly the keys whose fields equal the prefix."""

from itertools import islice, pairwise
from random import Random
from typing import Any

import pytest

from keyplan.engine import Commit, KeyRange, MemoryEngine, Put
from keyplan.errors import InvalidKeyError
from keyplan.layout import Change, ChangeKind, Changes, Template, layout_class_of
from keyplan.store import Store, item_key_page, level_page, levels
from keyplan.store.listing import listing
from tests.small_keys import alphabet_of_keys, layout_of, random_template, small_keys

KEYS_MAX = 60
PREFIXES_MAX = 8


class Case:
    """A store with some keys of one or two small templates below one root, and other bytes between them."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        is_text = rng.random() < 0.5
        templates: list[Template] = []
        while len(templates) < rng.randint(1, 2):
            made = random_template(rng, is_text=is_text)
            if made is not None and small_keys(made):
                templates.append(made)
        self.template = templates[0]
        self.root = rng.choice([b"", b"a/"])
        self.kind = layout_class_of(layout_of(*templates, root=self.root))
        self.store = Store(MemoryEngine())
        raw_keys = {self.root + raw for template in templates for raw in self._some(sorted(small_keys(template)))}
        alphabet = alphabet_of_keys(self.template)
        raw_keys |= {self.root + bytes(rng.choices(alphabet, k=rng.randint(1, 6))) for _ in range(20)}
        raw_keys -= {b""}
        if raw_keys:
            self.store.engine.commit(Commit((), tuple(Put(raw, b"v") for raw in sorted(raw_keys))))
        self.table = self.kind.bound().tables["t0"]
        self.view: Any = self.kind(self.store).view("t0")
        # Why by decode: where one key reads in two ways, its record is that of the reading which the table gives.
        decoded = [(raw, self.table.keys.decode(raw)) for raw in sorted(raw_keys)]
        self.stored: list[tuple[bytes, Any]] = [(raw, key) for raw, key in decoded if key is not None]

    def _some(self, keys: list[bytes]) -> list[bytes]:
        return keys if len(keys) <= KEYS_MAX else self.rng.sample(keys, KEYS_MAX)

    def prefixes(self, count: int) -> list[tuple[Any, ...]]:
        found = list(dict.fromkeys(key[:count] for _, key in self.stored))
        return found if len(found) <= PREFIXES_MAX else self.rng.sample(found, PREFIXES_MAX)

    def write_again(self) -> None:
        """Write every key of the store once more."""
        with self.store.engine.snapshot() as snapshot:
            puts = tuple(Put(entry.key, b"v") for entry in snapshot.scan(KeyRange(b"", None)))
        if puts:
            self.store.engine.commit(Commit((), puts))

    def listed(self, prefix: tuple[Any, ...]) -> list[Any]:
        return [key for _, key in self.stored if key[: len(prefix)] == prefix]

    def started(self, prefix: tuple[Any, ...], start: bytes) -> list[Any]:
        element = self.template.fields[len(prefix)].element
        return [key for key in self.listed(prefix) if element.encode(key[len(prefix)]).startswith(start)]


SEEDS = range(200)


@pytest.fixture(scope="module", params=range(0, len(SEEDS), 20))
def cases(request: pytest.FixtureRequest) -> list[Case]:
    return [Case(seed) for seed in range(request.param, request.param + 20)]


def test_keys_are_read_as_what_spells_them(cases: list[Case]) -> None:
    for case in cases:
        keys = small_keys(case.template)
        for raw, values in keys.items():
            assert case.table.keys.decode(case.root + raw) in values, case.template.source
            assert all(case.table.keys.encode(one) == case.root + raw for one in values), case.template.source
        for raw, key in case.stored:
            # A longer key than the enumeration has is one when it is spelled so.
            assert key in keys.get(raw[len(case.root) :], [key]), case.template.source
            assert case.table.keys.encode(key) == raw, case.template.source


def test_lists_counts_and_pages_are_exact(cases: list[Case]) -> None:
    for case in cases:
        for count in range(len(case.template.fields) + 1):
            for prefix in case.prefixes(count):
                wanted = case.listed(prefix)
                told = (case.template.source, prefix)
                assert list(case.view.keys(*prefix)) == wanted, told
                assert [key for key, _ in case.view.list(*prefix, reverse=True)] == wanted[::-1], told
                assert list(case.view.keys(*prefix, limit=2)) == wanted[:2], told
                assert case.view.count(*prefix) == len(wanted), told
                assert [row.key for row in case.view.rows(*prefix)] == wanted, told
                assert _paged(case, prefix, {}) == wanted, told


def test_partial_matches_are_exact(cases: list[Case]) -> None:
    for case in cases:
        for count, field in enumerate(case.template.fields):
            for prefix in case.prefixes(count):
                for key in case.listed(prefix)[:3]:
                    _compare_starts(case, prefix, key[count], field.element)


def _compare_starts(case: Case, prefix: tuple[Any, ...], value: Any, element: Any) -> None:
    starts = [value[:length] for length in range(1, len(value) + 1)] if isinstance(value, str | bytes) else [value]
    for start in starts:
        try:
            listed = list(case.view.keys(*prefix, starts_with=start))
        except InvalidKeyError:
            continue
        wanted = case.started(prefix, element.encode_start(start))
        assert listed == wanted, (case.template.source, prefix, start)
        assert _paged(case, prefix, {"starts_with": start}) == wanted, (case.template.source, prefix, start)


def test_bounds_are_exact(cases: list[Case]) -> None:
    for case in cases:
        for count in range(len(case.template.fields)):
            for prefix in case.prefixes(count):
                values = sorted({key[count] for key in case.listed(prefix)}, key=repr)[:4]
                for low, high in pairwise(values):
                    _compare_bounds(case, prefix, low, high)


def _compare_bounds(case: Case, prefix: tuple[Any, ...], low: Any, high: Any) -> None:
    place = len(prefix)
    for bounds in ({"at_least": low}, {"below": high}, {"at_least": low, "below": high}):
        try:
            listed = list(case.view.keys(*prefix, **bounds))
        except InvalidKeyError:
            continue
        wanted = [
            key
            for key in case.listed(prefix)
            if ("at_least" not in bounds or low <= key[place]) and ("below" not in bounds or key[place] < high)
        ]
        assert listed == wanted, (case.template.source, prefix, bounds)


def test_levels_are_the_distinct_values_of_the_next_field(cases: list[Case]) -> None:
    for case in cases:
        with case.store.engine.snapshot() as snapshot:
            for count in range(len(case.template.fields)):
                for prefix in case.prefixes(count):
                    wanted = list(dict.fromkeys(key[count] for key in case.listed(prefix)))
                    told = (case.template.source, prefix)
                    assert [level.value for level in levels(case.table, prefix, snapshot)] == wanted, told
                    found, token = [], ""
                    while True:
                        page = level_page(case.table, prefix, snapshot, limit=2, token=token, reads_max=10_000)
                        found += [level.value for level in page.levels]
                        token = page.next_token
                        if not token:
                            break
                    assert found == wanted, told
                    keys = item_key_page(case.table, prefix, snapshot, limit=100_000, reads_max=100_000)
                    assert [key for _, key in keys.keys] == case.listed(prefix), told


def test_watches_tell_of_the_listed_keys_alone(cases: list[Case]) -> None:
    for case in cases:
        for count in range(len(case.template.fields) + 1):
            for prefix in case.prefixes(count)[:3]:
                with case.view.watch(*prefix, after=0) as changes:
                    seen = [change.key for change in changes.poll(0)]
                assert seen == case.listed(prefix), (case.template.source, prefix)


def test_follows_list_and_tell_of_the_listed_keys_alone(cases: list[Case]) -> None:
    for case in cases:
        for count in range(len(case.template.fields) + 1):
            for prefix in case.prefixes(count)[:3]:
                with case.view.follow(*prefix) as changes:
                    seen = [change.key for change in _all(changes)]
                    case.write_again()
                    told = [(change.kind, change.key) for change in _all(changes)]
                    case.write_again()
                    case.store.engine.compact(case.store.revision)
                    listed_again = [(change.kind, change.key) for change in _all(changes)]
                wanted = case.listed(prefix)
                assert seen == wanted, (case.template.source, prefix)
                assert told == listed_again == [(ChangeKind.CHANGED, key) for key in wanted], (
                    case.template.source,
                    prefix,
                )


def _all(changes: Changes[Any, Any]) -> list[Change[Any, Any]]:
    """What a follow has to tell now: its list may come in several parts."""
    return [change for _ in range(3) for change in changes.poll(0)]


def test_a_token_is_of_one_list(cases: list[Case]) -> None:
    """Lists of one range that do not list the same keys refuse each other's tokens."""
    for case in cases:
        by_range: dict[Any, dict[str, Any]] = {}
        for count in range(len(case.template.fields) + 1):
            for prefix in case.prefixes(count):
                listed = listing(case.table, prefix)
                known = by_range.setdefault(listed.range, {}).setdefault(listed.digest, case.listed(prefix))
                assert known == case.listed(prefix), (case.template.source, prefix)


def _paged(case: Case, prefix: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    token = ""
    for _ in islice(iter(int, 1), 1_000):
        page = case.view.page(*prefix, limit=3, token=token, **options)
        found += [key for key, _ in page.records]
        token = page.next_token
        if not token:
            return found
    raise AssertionError("the pages do not end")
