"""Backup files made to hurt: what they claim is refused at its place, before it takes memory or time."""

import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import msgspec
import pytest

from keyplan.engine import open_engine
from keyplan.errors import InvalidInputError
from keyplan.keyspace import KeySpaceRegistry, KeySpaces
from keyplan.maintenance import (
    BackupSection,
    BackupWriter,
    BlockKind,
    BlockReader,
    BlockWriter,
    PairDigest,
    read_backup,
    restore_store,
)
from keyplan.maintenance.backup_blocks import NOTE_BYTES_MAX
from keyplan.store import Store
from tests.maintenance.backups import HEADER, file_of, section_file

MIB = 1 << 20


def opened(file: io.BytesIO) -> BlockWriter:
    """A backup up to where data begins."""
    writer = BlockWriter(file, is_compressed=True)
    writer.write(BlockKind.HEADER, msgspec.json.encode(HEADER))
    writer.write(BlockKind.SECTION, msgspec.json.encode(BackupSection(prefix="")))
    return writer


def packed_block(kind: BlockKind, stored: bytes, size: int) -> bytes:
    """A file of one block after the beginning, honestly checksummed, whatever it says of its size."""
    file = io.BytesIO()
    writer = opened(file)
    chain = writer._chain  # Why: to make what no writer makes.
    head = kind.value + b"\x01" + len(stored).to_bytes(4, "big") + size.to_bytes(4, "big")
    from hashlib import blake2b  # noqa: PLC0415

    digest = blake2b(chain, digest_size=16)
    digest.update(head)
    digest.update(stored)
    return file.getvalue() + head + stored + digest.digest()


def zeros(size: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()


def small_pairs(size: int) -> bytes:
    """Pairs of a key of four bytes and no value: ascending as far as a reader may look at them."""
    ascending = b"".join(struct.pack(">III", 4, number, 0) for number in range(MIB // 12))
    return ascending + struct.pack(">III", 4, 0xFFFFFFFF, 0) * ((size - len(ascending)) // 12)


BOMBS = {
    "600 MiB of zeros in one honest block": lambda: packed_block(BlockKind.DATA, zeros(600 * MIB), 600 * MIB),
    "64 MiB of pairs without values": lambda: packed_block(
        BlockKind.DATA, zlib.compress(small_pairs(60 * MIB), 1), len(small_pairs(60 * MIB))
    ),
    "a section of 60 MiB of brackets": lambda: packed_block(
        BlockKind.SECTION, zlib.compress(b"[" * (60 * MIB), 1), 60 * MIB
    ),
    "a block that unpacks to more than it says": lambda: packed_block(BlockKind.DATA, zeros(60 * MIB), MIB),
}

_CHILD = """
import sys
from pathlib import Path
from keyplan.errors import InvalidInputError
from keyplan.maintenance import read_backup
try:
    read_backup(Path(sys.argv[1]))
except InvalidInputError as error:
    assert error.facts["position"] > 0, error
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(peak.split()[1], error.facts["problem"])
"""
# Why not ru_maxrss: it is inherited from the process that this one was made by.


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_never_takes_the_memory_that_it_claims(name: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "bomb.kpb", BOMBS[name]())
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    kibibytes, problem = ran.stdout.split(maxsplit=1)
    assert problem
    assert int(kibibytes) < 256 * 1024


def test_a_value_that_packs_too_well_is_stored_as_it_is_and_comes_back(tmp_path: Path) -> None:
    value = bytes(65 * MIB)
    path = file_of(tmp_path / "large.kpb", section_file({b"k": value}))
    assert path.stat().st_size > 65 * MIB
    with open_engine("memory:") as engine:
        restore_store(engine, path)
        assert engine.value(b"k") == value


def test_a_block_without_data_has_a_bound(tmp_path: Path) -> None:
    file = io.BytesIO()
    BlockWriter(file, is_compressed=False).write(BlockKind.HEADER, b" " * (NOTE_BYTES_MAX + 1))
    file.seek(0)
    with pytest.raises(InvalidInputError) as refused:
        next(BlockReader(file, source="x").blocks())
    assert refused.value.facts["position"] == 9


def test_a_damaged_chain_names_the_block(tmp_path: Path) -> None:
    raw = bytearray(section_file({b"%05d" % number: b"v" * 100 for number in range(5000)}, is_compressed=False))
    raw[len(raw) // 2] ^= 1
    path = file_of(tmp_path / "torn.kpb", bytes(raw))
    with pytest.raises(InvalidInputError) as refused:
        read_backup(path)
    assert 0 < int(str(refused.value.facts["position"])) <= len(raw) // 2
    assert "checksum" in str(refused.value.facts["problem"])


# ---- what sections say of key spaces --------------------------------------------------------------------------------------


def described(path: Path, sections: int, history: str) -> Path:
    """Write a backup of key spaces without data, block by block, as no writer would."""
    with open_engine("memory:") as engine:
        registry = KeySpaces(engine)
        record = msgspec.json.decode(msgspec.json.encode(registry.create("n0", "bank")))
        stored = KeySpaceRegistry(Store(engine)).records.require(record["id"])
    file = io.BytesIO()
    writer = BlockWriter(file, is_compressed=True)
    writer.write(BlockKind.HEADER, msgspec.json.encode(msgspec.structs.replace(HEADER, kind="full")))
    empty = PairDigest().tally()
    trailer = msgspec.json.encode({"count": empty.count, "bytes": empty.bytes, "sha256": empty.sha256})
    for number in range(sections):
        mine = msgspec.structs.replace(stored, id=f"n{number}", name=f"n{number}")
        text = msgspec.json.encode({"prefix": mine.prefix, "keyspace": mine}).decode()
        writer.write(BlockKind.SECTION, f'{text[:-1]},"history":{history}}}'.encode())
        writer.write(BlockKind.TRAILER, trailer)
    writer.write(BlockKind.END, msgspec.json.encode({"sections": sections, "count": 0}))
    return file_of(path, file.getvalue())


_RESTORING_CHILD = (
    _CHILD.replace("read_backup(Path", "restore_key_spaces(open_engine('memory:'), Path")
    .replace(
        "from keyplan.maintenance import read_backup",
        "from keyplan.engine import open_engine\nfrom keyplan.maintenance import restore_key_spaces",
    )
    .replace("""    assert error.facts["position"] > 0, error\n""", "")
)


@pytest.mark.parametrize(
    ("sections", "history", "problem"),
    [
        (1, "[" + "{}," * 1_300_000 + "{}]", "a key space's record cannot be read"),
        (30, "[" + " " * (3 * MIB) + "]", "its sections take more than 16 MiB to describe"),
    ],
    ids=["a history of empty records", "many sections that are nearly as long as may be"],
)
def test_sections_never_take_the_memory_that_they_claim(
    sections: int, history: str, problem: str, tmp_path: Path
) -> None:
    path = described(tmp_path / "bomb.kpb", sections, history)
    ran = subprocess.run(
        [sys.executable, "-c", _RESTORING_CHILD, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    kibibytes, told = ran.stdout.split(maxsplit=1)
    assert problem in told
    assert int(kibibytes) < 256 * 1024


def test_a_backup_that_nobody_would_read_is_not_written() -> None:
    writer = BackupWriter(io.BytesIO(), HEADER)
    section = BackupSection(prefix="01", history=[{"description": "x" * MIB}])

    def begin_many() -> None:
        for _ in range(20):
            writer.begin(section)

    with pytest.raises(InvalidInputError, match="back up fewer key spaces in one file"):
        begin_many()
