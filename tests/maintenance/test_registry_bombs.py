"""What the registry of a backup may take in memory: its log is streamed, and the rest has a bound that is told."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyplan.engine import MemoryEngine
from keyplan.errors import InvalidInputError
from keyplan.keyspace import AuditEntry, Fence, KeySpaceRegistry, KeySpaces, PrefixHolder, State
from keyplan.maintenance import BackupSection, BackupWriter, registry_section, restore_key_spaces
from keyplan.maintenance.registry_section import ENTRIES_BYTES_MAX, REGISTRY_ROOT, registry_pairs
from tests.maintenance.backups import HEADER
from tests.maintenance.registry_lives import backed_up

MIB = 1 << 20
TABLES = KeySpaceRegistry.bound().tables

_CHILD = """
import resource
import sys
from pathlib import Path
from keyplan.engine import open_engine
from keyplan.errors import InvalidInputError
from keyplan.maintenance import restore_key_spaces
# Why this limit: pages of a mapped file can be given back, and are not counted by it.
resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))
try:
    with open_engine(sys.argv[2]) as engine:
        restore_key_spaces(engine, Path(sys.argv[1]))
    problem = "restored"
except InvalidInputError as error:
    problem = error.facts["problem"]
print(problem)
"""


def pair(table: str, key: object, value: Any) -> tuple[bytes, bytes]:
    return TABLES[table].keys.encode(key)[len(REGISTRY_ROOT) :], TABLES[table].form.encode(value)


def sound() -> dict[bytes, bytes]:
    """The entries of a registry with one key space."""
    with MemoryEngine() as engine:
        KeySpaces(engine).create("a", "bank")
        with engine.snapshot() as snapshot:
            return dict(registry_pairs(snapshot))


def written(path: Path, pairs: dict[bytes, bytes]) -> Path:
    """A backup with nothing but a registry."""
    with path.open("wb") as file:
        writer = BackupWriter(file, msgspec.structs.replace(HEADER, kind="full"))
        writer.begin(BackupSection(prefix=REGISTRY_ROOT.hex(), is_registry=True))
        for key in sorted(pairs):
            writer.add(key, pairs[key])
        writer.finish()
        writer.end()
    return path


def entry(name: str, detail: dict[str, Any]) -> AuditEntry:
    return AuditEntry(at="2026-01-01T00:00:00Z", actor="x", act="update", name=name, detail=detail, previous="0" * 64)


def holders() -> dict[bytes, bytes]:
    """Forty MiB of names that hold prefixes."""
    return dict(pair("holders", b"/%06d" % number + b"x" * 200, PrefixHolder("a" * 64, 1)) for number in range(130_000))


def fences() -> dict[bytes, bytes]:
    """Many small entries."""
    return dict(pair("fences", f"n{number}", Fence(1, State.ENABLED, "own")) for number in range(200_000))


def long_log() -> dict[bytes, bytes]:
    """A hundred and fifty MiB of what was done to one key space."""
    detail = {"description": "x" * 500_000}
    return dict(pair("audit", number, entry("a", detail)) for number in range(2, 320))


def lost_names() -> dict[bytes, bytes]:
    """Names that nothing but the log knows."""
    return dict(pair("audit", number, entry(f"n{number}", {})) for number in range(2, 100_000))


def one_entry() -> dict[bytes, bytes]:
    """An entry of sixty MiB of brackets."""
    key, _ = pair("audit", 2, entry("a", {}))
    return {key: b"[" * (60 * MIB)}


BOMBS = {
    "holders": (holders, f"160000 entries and {ENTRIES_BYTES_MAX // MIB} MiB"),
    "fences": (fences, "160000 entries"),
    "log": (long_log, "restored"),
    "names": (lost_names, "n2: its record is lost"),
    "entry": (one_entry, "1048576 are allowed"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_registry_never_takes_the_memory_that_its_file_claims(name: str, tmp_path: Path) -> None:
    entries, problem = BOMBS[name]
    more = entries()
    path = written(tmp_path / "bomb.kpb", (sound() if name != "fences" else {}) | more)
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), f"lmdb:{tmp_path}/t.kv"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert problem in ran.stdout


def test_a_name_that_only_the_log_knows_is_told_with_it(tmp_path: Path) -> None:
    path = written(tmp_path / "lost.kpb", sound() | dict([pair("audit", 9, entry("gone", {}))]))
    with MemoryEngine() as engine, pytest.raises(InvalidInputError, match="gone: its record is lost"):
        restore_key_spaces(engine, path)


def test_a_registry_that_no_restore_would_take_is_not_backed_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry_section, "ENTRIES_MAX", 12)
    with MemoryEngine() as engine:
        registry = KeySpaces(engine)
        registry.create("a", "bank")
        with MemoryEngine() as other:
            restore_key_spaces(other, backed_up(engine, tmp_path / "one.kpb"))
            assert KeySpaces(other).get("a") == registry.get("a")
        for name in "bcd":
            registry.create(name, "bank")
        with pytest.raises(InvalidInputError) as caught:
            backed_up(engine, tmp_path / "all.kpb")
        assert caught.value.advice == "back up the key spaces by their names, some in each file"
        assert backed_up(engine, tmp_path / "b.kpb", "b").stat().st_size > 0
