"""Prefixes: the rules for one that is given, the lowest free one for others. AC numbers are the specification's cases."""

from itertools import pairwise
from typing import Final

import pytest

from keyplan.engine import Commit, Delete, Engine, KeyRange
from keyplan.errors import (
    InvalidPrefixError,
    PrefixConflictError,
    PrefixExhaustedError,
    PrefixInUseError,
    PrefixNotEmptyError,
)
from keyplan.keyspace import Founding, KeySpaces, MarkKind, OwnerKind, prefix_codec
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import put_raw, raw_content, swept


def made(registry: KeySpaces, count: int) -> list[str]:
    """The prefixes of so many new key spaces, by order of making."""
    return [registry.create(f"k{number}", "app").prefix for number in range(1, count + 1)]


# ---- codes ---------------------------------------------------------------------------------------------------------------


def test_ac_04_no_prefix_is_the_beginning_of_another_and_ranges_are_disjoint() -> None:
    for name in ("uvarint", "ordered"):
        codec = prefix_codec(name)
        prefixes = sorted(codec.encode(number) for number in [*range(1, 600), *range(16_000, 20_001, 37), 2_097_152])
        for lower, higher in pairwise(prefixes):
            assert not higher.startswith(lower)
            end = KeyRange.of_prefix(lower).end
            assert end is not None
            assert end <= higher


@pytest.mark.parametrize(
    ("text", "number"),
    [("6d", 109), ("74", 116), ("8001", 128), ("6D", 109), ("ffff7f", 2_097_151), ("ffffff7f", 268_435_455)],
)
def test_ac_05_a_prefix_as_the_system_encodes_it_is_accepted(text: str, number: int) -> None:
    assert prefix_codec("uvarint").checked(bytes.fromhex(text)) == number


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("00", "reserved"),
        ("80", "unterminated"),
        ("7f01", "trailing_bytes"),
        ("617070312f", "trailing_bytes"),
        ("8100", "not_canonical"),
        ("8000", "not_canonical"),
        ("8080808001", "too_long"),
        ("zz", "not_hex"),
        ("6", "not_hex"),
        ("6d 74", "not_hex"),
    ],
)
def test_ac_05_any_other_prefix_is_refused_with_the_reason(registry: KeySpaces, text: str, reason: str) -> None:
    with pytest.raises(InvalidPrefixError) as caught:
        registry.create("orders", "shop", prefix=text)
    assert caught.value.reason == reason
    assert registry.header() is None, "nothing was written"


@pytest.mark.parametrize(
    ("text", "reason"),
    [("8001", "not_canonical"), ("c00001", "not_canonical"), ("80", "unterminated"), ("7f01", "trailing_bytes")],
)
def test_the_ordered_code_asks_for_its_own_length(text: str, reason: str) -> None:
    with pytest.raises(InvalidPrefixError) as caught:
        prefix_codec("ordered").checked(bytes.fromhex(text))
    assert caught.value.reason == reason


def test_ac_14_the_ordered_code_sorts_and_shares_boundaries() -> None:
    codec, uvarint = prefix_codec("ordered"), prefix_codec("uvarint")
    assert [codec.encode(number).hex() for number in (127, 128, 16_383, 16_384)] == ["7f", "8080", "bfff", "c04000"]
    assert sorted(codec.encode(number) for number in range(1, 40_001)) == list(map(codec.encode, range(1, 40_001)))

    def boundaries(code: object) -> int:
        assert code in {codec, uvarint}
        ranges = [KeyRange.of_prefix((codec if code is codec else uvarint).encode(number)) for number in range(1, 256)]
        return len({key_range.start for key_range in ranges} | {key_range.end for key_range in ranges})

    assert boundaries(codec) == 257
    assert boundaries(uvarint) == 384


# ---- allocation ----------------------------------------------------------------------------------------------------------


def test_ac_01_the_first_prefixes_are_01_02_and_03(registry: KeySpaces) -> None:
    assert made(registry, 3) == ["01", "02", "03"]
    ranges = [(keyspace.range.start, keyspace.range.end) for keyspace in registry.all()]
    assert ranges == [("01", "02"), ("02", "03"), ("03", "04")]


@pytest.mark.parametrize(
    ("code", "expected"), [("uvarint", ["7f", "8001", "8101"]), ("ordered", ["7f", "8080", "8081"])]
)
def test_ac_02_after_127_the_prefixes_have_two_bytes(code: str, expected: list[str], memory: Engine) -> None:
    registry = KeySpaces(memory, founding=Founding(prefix_codec=code, skip_printable=False))
    assert made(registry, 129)[126:] == expected
    assert registry.get("k127").key_range == KeyRange(b"\x7f", b"\x80")
    if code == "uvarint":
        assert registry.get("k128").key_range == KeyRange(b"\x80\x01", b"\x80\x02")
        found = registry.owner_of(bytes.fromhex("8001ff"))
        assert (found.kind, found.number) == (OwnerKind.KEYSPACE, 128)


def test_ac_06_prefixes_that_are_registered_are_passed_over(memory: Engine) -> None:
    registry = KeySpaces(memory, founding=Founding(skip_printable=False))
    registry.adopt("meta", "tidb", "6d")
    registry.adopt("data", "tidb", "74")
    automatic = made(registry, 117)
    assert [automatic[place - 1] for place in (108, 109, 114, 115)] == ["6c", "6e", "73", "75"]
    assert not {"6d", "74"} & set(automatic)


def test_ac_08_a_prefix_with_keys_of_nobody_is_quarantined_and_left_alone(engine: Engine, registry: KeySpaces) -> None:
    put_raw(engine, bytes.fromhex("0341"))
    assert made(registry, 3) == ["01", "02", "04"]
    ((prefix, mark),) = registry.marks()
    assert (prefix, mark.kind, mark.first_key) == (b"\x03", MarkKind.QUARANTINED, "0341")
    assert raw_content(engine) == {b"\x03A": b"raw"}


def test_a_quarantine_ends_when_the_prefix_is_registered_by_hand(engine: Engine, registry: KeySpaces) -> None:
    registry.init()
    put_raw(engine, b"\x01A")
    assert registry.create("a", "app").prefix == "02"
    engine.commit(Commit((), (Delete(b"\x01A"),)))
    assert registry.create("b", "app").prefix == "03"
    assert registry.create("c", "app", prefix="01").prefix == "01"
    assert registry.marks() == []
    assert registry.diagnose().is_sound


def test_ac_10_legacy_prefixes_share_a_container_that_is_not_given_out(memory: Engine) -> None:
    registry = KeySpaces(memory, founding=Founding(skip_printable=False))
    put_raw(memory, b"/runm/a", b"/CloudChamber/b")
    for name, prefix in (("runm", "2f72756e6d2f"), ("chamber", "2f436c6f75644368616d6265722f")):
        adopted = registry.adopt(name, "app", prefix, allow_legacy_prefix=True)
        assert (adopted.prefix, adopted.prefix_number) == (prefix, None)
    for prefix in ("2f72756e6d2f782f", "2f"):
        with pytest.raises(PrefixConflictError):
            registry.adopt("other", "app", prefix, allow_legacy_prefix=True)
    assert made(registry, 47)[45:] == ["2e", "30"]
    assert registry.owner_of(b"/runm/a/b").keyspace == registry.get("runm")
    assert registry.owner_of(b"/run").kind is OwnerKind.UNMANAGED


def test_the_container_is_free_again_when_its_last_legacy_key_space_is_gone(memory: Engine) -> None:
    clock = FakeClock()
    registry = KeySpaces(memory, founding=Founding(skip_printable=False), clock=clock)
    registry.adopt("runm", "app", b"/runm/".hex(), allow_legacy_prefix=True)
    registry.adopt("site", "app", b"/site/".hex(), allow_legacy_prefix=True)
    swept(registry, "runm")
    assert (b"/", MarkKind.LEGACY_CONTAINER) in [(prefix, mark.kind) for prefix, mark in registry.marks()]
    swept(registry, "site")
    assert made(registry, 47)[46] == "30", "the container is cooling down, as what was in it"
    clock.advance(62)
    assert registry.create("slash", "app").prefix == "2f"


@pytest.mark.parametrize(("prefix", "reason"), [("80ff", "unterminated"), ("006b70", "reserved"), ("", "empty")])
def test_a_legacy_prefix_must_lie_in_one_codeword(registry: KeySpaces, prefix: str, reason: str) -> None:
    with pytest.raises(InvalidPrefixError) as caught:
        registry.adopt("old", "app", prefix, allow_legacy_prefix=True)
    assert caught.value.reason == reason


def test_ac_11_a_legacy_prefix_inside_a_registered_one_is_refused(registry: KeySpaces) -> None:
    registry.adopt("m", "tidb", "6d")
    with pytest.raises(PrefixConflictError) as caught:
        registry.adopt("my", "app", "6d792f", allow_legacy_prefix=True)
    assert (caught.value.other, caught.value.holder) == ("6d", "m")
    with pytest.raises(PrefixInUseError):
        registry.create("n", "app", prefix="6d")


def test_ac_25_a_prefix_with_data_is_registered_only_by_adopting_it(engine: Engine, registry: KeySpaces) -> None:
    put_raw(engine, bytes.fromhex("6d01"))
    with pytest.raises(PrefixNotEmptyError) as caught:
        registry.create("m", "tidb", prefix="6d")
    assert (caught.value.http_status, caught.value.first_key) == (409, "6d01")
    assert registry.adopt("m", "tidb", "6d").prefix_number == 109


PROFILES: Final = [
    ("tikv", 117, {"6d", "72", "74", "78"}),
    ("etcd", 50, {"2f"}),
    ("none", 117, set[str]()),
]


@pytest.mark.parametrize(("profile", "count", "skipped"), PROFILES)
def test_a_profile_keeps_the_prefixes_of_well_known_keys_from_being_given_out(
    memory: Engine, profile: str, count: int, skipped: set[str]
) -> None:
    registry = KeySpaces(memory, founding=Founding(profile=profile, skip_printable=False))
    expected = [f"{number:02x}" for number in range(1, 128) if f"{number:02x}" not in skipped][:count]
    assert made(registry, count) == expected
    for prefix in skipped:
        assert registry.create(f"asked-{prefix}", "app", prefix=prefix).prefix == prefix


def test_on_a_store_that_was_not_empty_the_first_bytes_of_text_are_not_given_out(memory: Engine) -> None:
    put_raw(memory, b"zebra")
    registry = KeySpaces(memory, founding=Founding())
    assert made(registry, 34) == [*(f"{number:02x}" for number in range(1, 32)), "7f", "8001", "8101"]


def test_reserved_prefixes_are_nobodys(registry: KeySpaces) -> None:
    registry.configure({"reservations": ["02", "2F72"]})
    assert made(registry, 2) == ["01", "03"]
    with pytest.raises(PrefixInUseError):
        registry.create("two", "app", prefix="02")
    with pytest.raises(PrefixConflictError):
        registry.adopt("runm", "app", b"/runm/".hex(), allow_legacy_prefix=True)


def test_a_freed_prefix_is_used_again_after_the_cool_down_and_the_lowest_comes_first(memory: Engine) -> None:
    clock = FakeClock()
    registry = KeySpaces(memory, founding=Founding(skip_printable=False), clock=clock)
    made(registry, 3)
    swept(registry, "k1")
    assert registry.create("early", "app").prefix == "04"
    with pytest.raises(PrefixInUseError):
        registry.create("asked", "app", prefix="01")
    clock.advance(62)
    assert registry.create("late", "app").prefix == "01"
    assert [mark.kind for _, mark in registry.marks()] == []


def test_a_cool_down_can_be_for_ever(memory: Engine) -> None:
    clock = FakeClock()
    registry = KeySpaces(memory, founding=Founding(skip_printable=False), clock=clock)
    registry.configure({"reuse-cooldown-seconds": None})
    made(registry, 1)
    swept(registry, "k1")
    clock.advance(10 * 365 * 86_400)
    assert registry.create("late", "app").prefix == "02"


def test_when_every_prefix_of_the_length_is_taken_it_says_so(memory: Engine) -> None:
    registry = KeySpaces(memory, founding=Founding(skip_printable=False))
    registry.configure({"prefix-bytes-max": 1})
    assert made(registry, 127)[-1] == "7f"
    with pytest.raises(PrefixExhaustedError) as caught:
        registry.create("one-more", "app")
    assert caught.value.http_status == 507
    registry.configure({"prefix-bytes-max": 2})
    assert registry.create("one-more", "app").prefix == "8001"


@pytest.mark.parametrize(
    ("key", "kind"), [(b"", "system"), (b"\x00kp", "system"), (b"\x90", "unmanaged"), (b"zz", "unmanaged")]
)
def test_ac_15_keys_of_nobody_are_told_from_the_systems(registry: KeySpaces, key: bytes, kind: str) -> None:
    registry.init()
    assert registry.owner_of(key).kind == kind
