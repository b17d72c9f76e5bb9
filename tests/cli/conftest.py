"""The command line called in the test's own process, on a store in a folder of the test."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import pytest

import keyplan
from keyplan.cli.main import main
from keyplan.keyspace import KeySpaceRegistry
from keyplan.store import Store
from keyplan.testing.checked import assert_healthy
from tests.cli.layouts import Binary, Box, Pair, Place, Shelf, Site

CheckAfter = Callable[..., AbstractContextManager[Store]]
SITE = "tests.cli.layouts:Site"


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def error(self) -> Any:
        return json.loads(self.err)


class Keyplan(Protocol):
    """The command line, called with arguments."""

    def __call__(self, *arguments: str) -> Answer: ...


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("STORE", "LAYOUT", "LAYOUT_CHECK", "CONFIG", "SERVER", "TOKEN", "SERVER_CA")
    for name in (*(f"KEYPLAN_{name}" for name in names), "_KEYPLAN_COMPLETE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Keyplan:
    """Keyplan without a store or a layout."""

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return call


def check_registry(url: str) -> None:
    """Fail unless the key space registry of a store is as it should be. A store that was never made is."""
    if Path(url.removeprefix("lmdb:")).exists():
        with keyplan.open(url) as store:
            assert_healthy(store, KeySpaceRegistry, has_others=True)


@pytest.fixture
def site(run: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, check_after: CheckAfter) -> Iterator[Keyplan]:
    """Keyplan with the layout Site and a store of three boxes, two notes and a flag.

    At the end it is checked, and so is every other store that the test has made beside it.
    """
    url = f"lmdb:{tmp_path}/site.kv"
    with keyplan.open(url) as store, Site(store).transaction() as site:
        site.boxes.insert(Shelf("a", 1), Box("cups", 3, tags=["red", "blue"], place=Place("cellar", 2)))
        site.boxes.insert(Shelf("a", 2), Box("plates", 5, tags=["red"]))
        site.boxes.insert(Shelf("b", 1), Box("forks", label="cut\x1blery"))
        site.notes.insert("hello", "world")
        site.notes.insert("help", "needed")
        site.flags.insert("on", None)
        site.tickets.next(2)
    monkeypatch.setenv("KEYPLAN_STORE", url)
    monkeypatch.setenv("KEYPLAN_LAYOUT", SITE)
    yield run
    with check_after(keyplan.open(url), Site):
        pass
    for folder in sorted({*tmp_path.glob("*.kv")} - {tmp_path / "site.kv"}):
        with keyplan.open(f"lmdb:{folder}") as store:
            assert_healthy(store, Site, has_others=True)


@pytest.fixture
def binary(run: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, check_after: CheckAfter) -> Iterator[Keyplan]:
    """Keyplan with the layout Binary and two records in a store, which is checked at the end."""
    url = f"lmdb:{tmp_path}/binary.kv"
    with keyplan.open(url) as store:
        layout = Binary(store)
        layout.pairs.insert(Pair(UUID(int=1), 7), b"\x00\xff")
        layout.pairs.insert(Pair(UUID(int=1), 300), b"text")
    monkeypatch.setenv("KEYPLAN_STORE", url)
    monkeypatch.setenv("KEYPLAN_LAYOUT", "tests.cli.layouts:Binary")
    yield run
    with check_after(keyplan.open(url), Binary):
        pass
