"""Backup files: what is written is read; what was cut off, changed, moved or added is found before anything of it is used."""

import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyplan.errors import InvalidInputError
from keyplan.files import new_file
from keyplan.maintenance import BackupReader, BackupSection, BackupWriter, PairDigest, read_backup
from tests.maintenance.backups import HEADER, file_of, section_file

CONTENT = {
    b"a": b"1",
    b"b": b"",
    b"": b"empty key",
    b"\xff\xff": bytes(300),
    **{b"n%05d" % n: b"v" * n for n in range(99)},
}


def read(raw: bytes) -> dict[bytes, bytes]:
    reader = BackupReader(io.BytesIO(raw), source="file")
    found: dict[bytes, bytes] = {}
    for _ in reader.sections():
        found.update(reader.pairs())
    return found


@given(
    content=st.dictionaries(st.binary(max_size=20), st.binary(max_size=50), max_size=20), is_compressed=st.booleans()
)
def test_what_was_written_is_read(content: dict[bytes, bytes], *, is_compressed: bool) -> None:
    assert read(section_file(content, is_compressed=is_compressed)) == content


def test_a_file_of_many_blocks_is_read() -> None:
    content = {b"%06d" % number: bytes([number % 256]) * 3000 for number in range(700)}
    for is_compressed in (True, False):
        raw = section_file(content, is_compressed=is_compressed)
        assert raw.count(b"D") >= 8
        assert read(raw) == content
    assert len(section_file(content)) < len(section_file(content, is_compressed=False)) / 20


def test_the_beginning_and_the_trailer_are_as_documented() -> None:
    raw = section_file({b"k": b"v"}, is_compressed=False)
    assert raw.startswith(b"\x89kpb\r\n\x1a\n\x01H\x00")
    stream = bytes.fromhex("00000001 6b 00000001 76")
    assert stream in raw
    assert hashlib.sha256(stream).hexdigest().encode() in raw


def test_the_digest_is_of_lengths_keys_and_values() -> None:
    tally = PairDigest.of([(b"ab", b""), (b"b", b"xyz")])
    stream = bytes.fromhex("00000002 6162 00000000 00000001 62 00000003 78797a")
    assert (tally.count, tally.bytes, tally.sha256) == (2, 6, hashlib.sha256(stream).hexdigest())


@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_file_that_was_cut_off_anywhere_is_refused(*, is_compressed: bool) -> None:
    raw = section_file({b"a": b"1", b"b": b"22" * 60}, is_compressed=is_compressed)
    for size in range(len(raw)):
        with pytest.raises(InvalidInputError):
            read(raw[:size])


@pytest.mark.parametrize("is_compressed", [True, False])
def test_every_flipped_bit_is_found(*, is_compressed: bool) -> None:
    raw = section_file({b"a": b"1", b"b": b"22" * 60}, is_compressed=is_compressed)
    for place in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(InvalidInputError):
            read(bytes(flipped))


def test_bytes_behind_the_end_are_found() -> None:
    with pytest.raises(InvalidInputError, match="behind the end"):
        read(section_file({b"a": b"1"}) + b"\x00")


def blocks_of(raw: bytes) -> list[bytes]:
    """The blocks of a file as they stand, by the documented frame."""
    found, position = [], 9
    while position < len(raw):
        length = int.from_bytes(raw[position + 2 : position + 6], "big")
        found.append(raw[position : position + 10 + length + 16])
        position += 10 + length + 16
    return found


def test_blocks_that_were_left_out_changed_places_or_came_from_another_file_are_found() -> None:
    raw = section_file({b"%06d" % number: bytes(5000) for number in range(200)}, is_compressed=False)
    blocks = blocks_of(raw)
    assert [block[:1] for block in blocks] == [b"H", b"S", b"D", b"D", b"D", b"D", b"T", b"E"]
    other = blocks_of(section_file({b"%06d" % number: bytes(5000) for number in range(1, 200)}, is_compressed=False))
    variants = [
        [*blocks[:3], *blocks[4:]],
        [*blocks[:2], blocks[3], blocks[2], *blocks[4:]],
        [*blocks[:4], blocks[3], *blocks[4:]],
        [*blocks[:2], other[2], *blocks[3:]],
    ]
    for variant in variants:
        with pytest.raises(InvalidInputError, match="checksum"):
            read(raw[:9] + b"".join(variant))


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 400))
def test_bytes_written_over_a_file_anywhere_never_pass(patch: bytes, place: int) -> None:
    raw = section_file({b"a": b"1", b"b": b"2" * 50})
    patched = raw[:place] + patch + raw[place + len(patch) :]
    if patched == raw:
        return
    with pytest.raises(InvalidInputError):
        read(patched)


def test_pairs_out_of_order_are_refused_although_their_checksums_hold() -> None:
    file = io.BytesIO()
    writer = BackupWriter(file, HEADER)
    writer.begin(BackupSection(prefix=""))
    writer.add(b"b", b"")
    writer.add(b"a", b"")
    writer.finish()
    writer.end()
    with pytest.raises(InvalidInputError, match="ascending"):
        read(file.getvalue())


def test_a_backup_of_another_version_or_another_kind_of_file_is_refused() -> None:
    raw = section_file({})
    with pytest.raises(InvalidInputError, match="version 3"):
        read(raw[:8] + b"\x03" + raw[9:])
    for other in (b"", b"PK\x03\x04" + bytes(50), raw.replace(b"\r\n", b"\n", 1)):
        with pytest.raises(InvalidInputError):
            read(other)


def test_sections_that_were_not_read_are_gone_through_all_the_same() -> None:
    raw = section_file(CONTENT)
    reader = BackupReader(io.BytesIO(raw), source="file")
    for _ in reader.sections():
        assert next(reader.pairs()) == (b"", b"empty key")
    assert reader.trailer is not None
    assert reader.trailer.count == len(CONTENT)
    assert reader.position == len(raw)


# ---- files ----------------------------------------------------------------------------------------------------------------


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "site.kpb"

    def write_half() -> None:
        with new_file(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list(tmp_path.iterdir()) == []
    with new_file(path) as file:
        file.write(section_file(CONTENT))
        assert not path.exists()
    assert [found.name for found in tmp_path.iterdir()] == ["site.kpb"]
    assert read_backup(path).count == len(CONTENT)


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = file_of(tmp_path / "site.kpb", b"precious")
    with pytest.raises(InvalidInputError, match="there is a file"), new_file(path):
        pass
    assert path.read_bytes() == b"precious"
    with pytest.raises(InvalidInputError, match="No such file"), new_file(tmp_path / "none" / "site.kpb"):
        pass
