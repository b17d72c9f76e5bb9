"""A pair of equal stores of a given size: keyplan has one open, the hand-written code the other."""

import shutil
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import keyplan
from benchmarks.handwritten import RawStore, open_by_hand
from benchmarks.inventory import ITEMS_A_PROJECT, Inventory, Item, item, item_key
from keyplan.codec import JsonForm
from keyplan.store import Store

__all__ = ["Stand", "Stands"]

_TAG_RACKS = 100
_TAG_ZONES = 10
_REVISIONS_WHILE_FILLING = 8
"""Why: a store of a million items is filled in five hundred commits; their log would be as large as the data."""


class Stand(NamedTuple):
    """Two stores with the same bytes; `folder` is keyplan's."""

    store: Store
    inventory: Inventory
    by_hand: RawStore
    folder: Path
    size: int


class Stands:
    """Makes stands. A store of each size is filled once, and copied for every stand that writes to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where stores are made."""
        return self._folder

    @contextmanager
    def stand(
        self, size: int, *, has_history: bool = True, durability: str = "none", is_only_read: bool = False
    ) -> Generator[Stand, None, None]:
        """Open two copies of the store of that size: fresh ones, removed at the end, or ones that are only read and kept."""
        template = self._filled(size, has_history=has_history)
        suffix = f"-{template.name}" if is_only_read else ""
        folders = [self._folder / f"{name}{suffix}" for name in ("keyplan", "by-hand")]
        try:
            for folder in folders:
                if not folder.exists():
                    shutil.copytree(template, folder)
            with ExitStack() as stack:
                options = f"durability={durability}" + ("" if has_history else "&history=off")
                store = stack.enter_context(keyplan.open(f"lmdb:{folders[0]}?{options}"))
                # Why opened by keyplan first: it notices that the folder is a copy, and leaps; both must count from there.
                keyplan.open(f"lmdb:{folders[1]}?{options}").close()
                by_hand = open_by_hand(folders[1], has_history=has_history, durability=durability)
                yield Stand(store, Inventory(store), stack.enter_context(by_hand), folders[0], size)
        finally:
            for folder in () if is_only_read else folders:
                shutil.rmtree(folder, ignore_errors=True)

    def _filled(self, size: int, *, has_history: bool) -> Path:
        folder = self._folder / f"filled-{size}-{'history' if has_history else 'raw'}"
        if not folder.exists():
            history = str(_REVISIONS_WHILE_FILLING) if has_history else "off"
            with keyplan.open(f"lmdb:{folder}", durability="none", history=history) as store:
                store.engine.load(_sorted_pairs(size))
            (folder / "lock.mdb").unlink(missing_ok=True)
        return folder


def _sorted_pairs(size: int) -> Iterator[tuple[bytes, bytes]]:
    """Everything that a store of `size` items holds, in order of keys, without holding it all."""
    encode = JsonForm[Item](Item).encode
    for number in range(size):
        yield f"/inventory/items/{item_key(number)}".encode(), encode(item(number))
    for number in range(size):
        made = item(number)
        yield f"/inventory/names/{made.project}/{made.name}".encode(), item_key(number).encode()
    for number in range(size):
        yield f"/inventory/projects/project-{number // ITEMS_A_PROJECT:08d}/{item_key(number)}".encode(), b""
    for tag, every in (("rack-{:02d}", _TAG_RACKS), ("zone-{}", _TAG_ZONES)):
        for rest in range(every):
            for number in range(rest, size, every):
                yield f"/inventory/tags/{tag.format(rest)}/{item_key(number)}".encode(), b""
