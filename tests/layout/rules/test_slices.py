"""Templates that are not regular: a level that counts the slashes of the path behind it, derived or within one codec."""

import pytest

from keyplan.layout.rules import lint
from tests.layout.rules.builders import binary_tables


@pytest.mark.parametrize("paths", ["{path.level:u8}{path:path}", "{path:level_path}"])
@pytest.mark.parametrize(
    ("other", "witness"),
    [
        (r"\x01abc", None),
        (r"\x01a/b", b"\x01a/b"),
        (r"\x02{name:text_tail}", b"\x02a/a/a"),
        (r"\x02{name:text(exclude='/')}", None),
        (r"\x01{name:text(exclude='/')}", None),
        (r"\x00{name:text(exclude='/')}", b"\x00a"),
        (r"{dataset:raw_uuid}{run:u64}", b"\x00" + b"a" * 23),
        (r"{first:fixed(width=1)}/{name:text}", None),
        (r"{first:fixed(width=1)}{a:text}/{b:text}", b"\x01a/a"),
    ],
)
def test_the_level_of_a_witness_counts_its_slashes(paths: str, other: str, witness: bytes | None) -> None:
    findings = lint(binary_tables(paths, other)).of_rule("L1")
    assert [finding.witness for finding in findings] == ([witness] if witness else [])


@pytest.mark.parametrize("paths", ["{path.level:u8}{path:path}", "{path:level_path}"])
def test_a_derived_level_adds_no_reading(paths: str) -> None:
    assert lint(binary_tables(paths)).of_rule("L2") == ()


def test_a_level_decides_between_two_readings() -> None:
    (finding,) = lint(binary_tables("{path.level:u8}{path:path}#{type:text_tail}")).of_rule("L2")
    assert finding.witness == b"\x00a##a"
    assert finding.message == "one key reads as path=a type=#a or path=a# type=a"


def test_a_path_of_255_slashes_is_the_shortest_behind_a_level_of_ff() -> None:
    (finding,) = lint(binary_tables("{path.level:u8}{path:path}")).of_rule("L9")
    assert finding.witness == b"\xff" + b"/".join([b"a"] * 256)
