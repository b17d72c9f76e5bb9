"""Tables whose keys begin with something derived from a later field: their lists, indexes and builds leave nothing out."""

import pytest
from msgspec import Struct

import keyplan
from keyplan import Layout, Table, Unique
from keyplan.errors import InvalidKeyError, UniqueViolationError
from keyplan.maintenance import build_index, prepare_index


class Note(Struct):
    city: str


class Files(Layout, root=b"d"):
    files = Table(b"{path.level:u8}{path:path}", key=str, value=Note)


class IndexedFiles(Layout, root=b"d"):
    files = Table(b"{path.level:u8}{path:path}", key=str, value=Note)
    by_city = Unique(b"\xffc{city:escaped_text}", of=files, key=str)


PATHS = ["a", "b", "a/b", "a/c", "a/b/c"]
"""In the order of their keys: shallow ones first."""


@pytest.fixture
def store() -> keyplan.Store:
    opened = keyplan.open("memory:")
    files = Files(opened).files
    for path in PATHS:
        files.insert(path, Note(path))
    return opened


def test_a_table_that_begins_with_a_level_has_lists_counts_and_pages(store: keyplan.Store) -> None:
    files = Files(store).files
    assert list(files.keys()) == PATHS
    assert [record.city for _, record in files.list()] == PATHS
    assert files.count() == len(PATHS)
    first = files.page(limit=3)
    second = files.page(limit=3, token=first.next_token)
    assert [key for key, _ in (*first.records, *second.records)] == PATHS
    assert list(files.keys("a/b")) == ["a/b"]


def test_a_table_that_begins_with_a_level_is_watched(store: keyplan.Store) -> None:
    files = Files(store).files
    with files.watch(after=0) as changes:
        seen = [change.key for change in changes.poll(0)]
    assert seen == PATHS


def test_an_index_of_a_table_that_begins_with_a_level_is_built_whole(store: keyplan.Store) -> None:
    prepare_index(store, IndexedFiles.bound(), "by_city")
    built = build_index(store, IndexedFiles.bound(), "by_city")
    assert (built.is_readable, built.entries_written) == (True, len(PATHS))
    files = IndexedFiles(store)
    assert files.by_city.key_of("a/c") == "a/c"
    with pytest.raises(UniqueViolationError):
        files.files.insert("z", Note("a/c"))


def test_a_level_before_the_field_cannot_be_narrowed_by_it(store: keyplan.Store) -> None:
    with pytest.raises(InvalidKeyError, match="derived"):
        Files(store).files.count(starts_with="a")
