"""Binary keys as far as the evidence goes, and "unknown" where it does not."""

import random
from uuid import UUID

from tests.maintenance.inference.foreign_stores import inferred, templates

CHOSEN = random.Random(11)
UUIDS = [UUID(int=CHOSEN.getrandbits(128), version=4).bytes for _ in range(5)]


def u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_random_bytes_of_one_width_are_unknown() -> None:
    found = inferred({CHOSEN.randbytes(16): b"\x80" for _ in range(300)})
    assert templates(found) == ["{unknown:fixed(width=16)}"]
    assert any("16 bytes: fixed(width=16)" in note.decision for note in found.doubts)


def test_random_bytes_of_any_width_are_unknown() -> None:
    found = inferred({CHOSEN.randbytes(CHOSEN.randrange(1, 60)): b"\x80" for _ in range(500)})
    assert templates(found) == ["{unknown:tail}"]
    assert any(note.decision == "unknown bytes" for note in found.doubts)


def test_uuids_and_numbers_are_found_in_each_width() -> None:
    pairs = {uuid + u64(run): b"" for uuid in UUIDS for run in (1, 2, 70_000)}
    pairs |= {uuid + u64(1) + u64(subrun): b"" for uuid in UUIDS for subrun in (0, 5)}
    assert templates(inferred(pairs)) == ["{uuid:raw_uuid}{number:u64}", "{uuid:raw_uuid}{number:u64}{number_2:u64}"]


def test_signed_numbers_keep_their_offset() -> None:
    pairs = {uuid + (number + 2**63).to_bytes(8, "big"): b"" for uuid in UUIDS for number in (1, 5)}
    assert templates(inferred(pairs)) == ["{uuid:raw_uuid}{number:i64}"]


def test_a_first_byte_tells_kinds_of_keys_apart() -> None:
    pairs = {b"U" + number.to_bytes(4, "big"): b"" for number in range(50)}
    pairs |= {b"G" + number.to_bytes(4, "big") + b"name%d" % number: b"" for number in range(50)}
    assert templates(inferred(pairs)) == ["G{number:u32}{name:text_tail}", "U{number:u32}"]


def test_names_that_a_zero_byte_ends_are_found() -> None:
    pairs = {b"user%d\x00" % number + u64(number): b"" for number in range(20)}
    assert templates(inferred(pairs)) == ["{name:text(exclude='')}\\x00{number:u64}"]


def test_one_binary_key_is_bytes_of_its_width() -> None:
    assert templates(inferred({b"\x01\x02\x03": b""})) == ["{unknown:fixed(width=3)}"]


def test_values_that_are_uuids_are_uuids() -> None:
    pairs = {uuid + u64(1): UUIDS[0] for uuid in UUIDS}
    found = inferred(pairs)
    assert [item["value"] for item in found.description["items"]] == [{"form": "element", "element": "raw_uuid"}]
