"""Any byte string gets a meaning, and an unknown key the nearest template and the place where it departs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.layout import Kind, raw_key_of, shown_key
from tests.layout.layouts import BladeKey, Physics, Site

SITE = Site.bound()


@pytest.mark.parametrize(
    ("raw", "kind", "item", "key"),
    [
        (b"/site/racks/r1", Kind.RECORD, "racks", "r1"),
        (b"/site/rack/r1/blades/7", Kind.RECORD, "blades", BladeKey("r1", 7)),
        (b"/site/by-serial/s9", Kind.INDEX_ENTRY, "by_serial", "s9"),
        (b"/site/by-tag/on/a/r1/7", Kind.INDEX_ENTRY, "by_tag", ("on", "a", "r1", 7)),
        (b"/site/next-port", Kind.COUNTER, "port", ()),
    ],
)
def test_a_key_of_the_layout_is_known(raw: bytes, kind: Kind, item: str, key: object) -> None:
    meaning = SITE.meaning(raw)
    assert (meaning.kind, meaning.item, meaning.key) == (kind, item, key)


def test_the_fields_are_named() -> None:
    assert SITE.meaning(b"/site/rack/r1/blades/7").fields == {"rack": "r1", "blade": 7}


@pytest.mark.parametrize(
    ("raw", "item", "position"),
    [
        (b"/site/rack/r1/blades/07", "blades", 22),
        (b"/site/rack/r1/fans/1", "blades", 14),
        (b"/site/racks/a/b", "racks", 13),
        (b"/site/next-pork", "port", 14),
        (b"/sitf/racks/a", None, 4),
        (b"", None, 0),
    ],
)
def test_an_unknown_key_departs_from_the_nearest_template(raw: bytes, item: str | None, position: int) -> None:
    meaning = SITE.meaning(raw)
    assert (meaning.kind, meaning.item, meaning.position) == (Kind.UNKNOWN, item, position)


def test_a_text_key_that_ends_in_a_slash_above_a_template_is_a_namespace() -> None:
    assert SITE.meaning(b"/site/rack/r1/").kind is Kind.NAMESPACE


def test_a_binary_layout_has_no_namespaces() -> None:
    assert Physics.bound().meaning(b"d\x00/").kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"/site/racks/r1", "/site/racks/r1: record of racks (rack=r1)"),
        (b"/site/next-port", "/site/next-port: counter of port"),
        (b"\xff", "\\xff: not below the root of Site; departs at byte 0"),
    ],
)
def test_a_meaning_reads_as_a_sentence(raw: bytes, expected: str) -> None:
    assert str(SITE.meaning(raw)) == expected


@given(st.binary(max_size=40))
def test_a_meaning_is_found_for_any_bytes(raw: bytes) -> None:
    for layout in (SITE, Physics.bound()):
        for candidate in (raw, layout.root + raw):
            meaning = layout.meaning(candidate)
            assert meaning.raw_key == candidate
            assert 0 <= meaning.position <= len(candidate)
            assert str(meaning)


@given(st.binary(max_size=20) | st.text(max_size=10).map(str.encode))
def test_a_shown_key_reads_back(raw: bytes) -> None:
    assert shown_key(raw).isprintable()
    assert raw_key_of(shown_key(raw)) == raw


@pytest.mark.parametrize("shown", ["\\", "\\y", "\\x1", "\\xzz"])
def test_a_malformed_escape_is_refused(shown: str) -> None:
    with pytest.raises(ValueError, match=r"position|invalid"):
        raw_key_of(shown)
