"""Programs for processes of their own, since their files cannot grow: `python -m tests.crash.small_disk NAME FOLDER`.

Each prints one JSON object with what it saw.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from keyplan.engine import ALL_KEYS
from keyplan.errors import EngineError
from keyplan.store import Store, open_store
from tests.store.layouts import Blade, BladeKey, Rack, Site, index_faults

PAGE_BYTES: Final = 4096
BALLAST_BYTES: Final = 1 << 18
_REFUSED: Final = 3
"""The exit code of a writer whose commit was refused."""
ONE: Final = BladeKey("r1", "1")
TWO: Final = BladeKey("r1", "2")

Content = list[tuple[bytes, bytes]]


def write(site: Site) -> None:
    """Write many pages in one commit: a rack, blades with entries in two indexes, and the counter."""
    with site.transaction() as tx:
        tx.racks.put("r1", Rack("x" * 20_000))
        tx.blades.put(ONE, Blade("s9", [f"tag {number} " + "x" * 200 for number in range(60)]))
        tx.blades.delete(TWO)
        tx.ports.next()


def furnish(site: Site) -> None:
    site.racks.put("r1", Rack("a"))
    site.blades.put(ONE, Blade("s1", ["a", "b"]))
    site.blades.put(TWO, Blade("s2", ["b"]))


def content(store: Store) -> Content:
    with store.engine.snapshot() as snapshot:
        return [(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS)]


def limit_files_to(size: int) -> None:
    """Let no file grow beyond `size` bytes; writing there fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def refusing_disk(folder: Path) -> dict[str, Any]:
    """Let the disk end one page later each time, until the commit has room. The store stays open all the while."""
    errors: set[str] = set()
    refused = 0
    with open_store(f"lmdb:{folder}") as store:
        site = Site(store)
        furnish(site)
        before, revision = content(store), store.revision
        for pages in range(2, 1_000):
            limit_files_to(pages * PAGE_BYTES)
            try:
                write(site)
            except EngineError as error:
                errors.add(f"{type(error).__name__}: {error.facts['problem']}")
                refused += 1
                assert (content(store), store.revision) == (before, revision), "something of it was written"
                assert index_faults(store, Site.bound()) == []
            else:
                break
        after = content(store)
        assert index_faults(store, Site.bound()) == []
        limit_files_to(resource.RLIM_INFINITY)
        write(site)
        return {"errors": sorted(errors), "refused": refused, "changed": after != before, "revision": store.revision}


def killing_disk(folder: Path) -> dict[str, Any]:
    """As `refusing_disk`, but the system kills the writer in the middle of the write that has no room."""
    with open_store(f"lmdb:{folder}") as store:
        furnish(Site(store))
        before, revision = content(store), store.revision
    killed = refused = 0
    for pages in range(1, 1_000):
        writer = os.fork()
        if writer == 0:
            os._exit(_write_within(folder, pages * PAGE_BYTES))
        status = os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1])
        with open_store(f"lmdb:{folder}") as store:
            assert index_faults(store, Site.bound()) == []
            if status == 0:
                return {"killed": killed, "refused": refused, "revisions": store.revision - revision}
            assert status in (-signal.SIGXFSZ, _REFUSED), status
            killed += status != _REFUSED
            refused += status == _REFUSED
            assert (content(store), store.revision) == (before, revision), "something of it was written"
    raise AssertionError("it never had room")


def _write_within(folder: Path, size: int) -> int:
    store = open_store(f"lmdb:{folder}")
    site = Site(store)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Why: Python ignores it, so that the write fails instead.
    limit_files_to(size)
    try:
        write(site)
    except EngineError:
        return _REFUSED  # Why: a write of several pages is cut short where the room ends, and that kills nobody.
    return 0


def full_file_system(folder: Path) -> dict[str, Any]:
    """Fill the file system that `folder` is on; read, open again and read, and write once a file beside it is removed."""
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * BALLAST_BYTES)
    url = f"lmdb:{folder / 'store'}"
    written = 0
    problem = ""
    with open_store(url) as store:
        site = Site(store)
        while not problem:
            try:
                site.blades.insert(BladeKey("r1", str(written)), Blade(f"s{written}", ["a"] * 2, written))
                written += 1
            except EngineError as error:
                problem = f"{type(error).__name__}: {error.facts['problem']}"
        snapshots = [store.engine.snapshot() for _ in range(500)]  # Why: each takes a slot of the lock file.
        for snapshot in snapshots:
            snapshot.close()
        read = _numbers(store)
    with open_store(url) as store:
        read_again = _numbers(store)
        ballast.unlink()
        Site(store).blades.insert(BladeKey("r1", "after"), Blade("after", ["a"]))
        writable = Site(store).by_serial.key_of("after") is not None
        assert index_faults(store, Site.bound()) == []
    whole = list(range(written))
    return {
        "written": written,
        "problem": problem,
        "read": read == whole,
        "read again": read_again == whole,
        "writable": writable,
    }


def _numbers(store: Store) -> list[int]:
    assert index_faults(store, Site.bound()) == []
    return sorted(blade.watts for _, blade in Site(store).blades.list())


PROGRAMS: Final[dict[str, Callable[[Path], dict[str, Any]]]] = {
    program.__name__: program for program in (refusing_disk, killing_disk, full_file_system)
}

if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(PROGRAMS[sys.argv[1]](Path(sys.argv[2]))))
