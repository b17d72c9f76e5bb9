"""The lint against a model that knows no automata: all strings over three letters, tried one after the other."""

import re
from collections.abc import Iterator
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from keyplan.layout import Template
from keyplan.layout.rules import lint, lint_prefix
from tests.layout.rules.builders import layout, table, text

ALPHABET = "ab/"
BYTES_MAX = 6

# Each part as a template writes it, and as a regular expression written by hand.
PARTS = [
    ("a", "a"),
    ("b", "b"),
    ("/", "/"),
    ("ab", "ab"),
    ("{%s:text(allow='ab')}", "[ab]+"),
    ("{%s:text(allow='b')}", "b+"),
    ("{%s:text(allow='ab',bytes_max=1)}", "[ab]"),
    ("{%s:text(allow='ab',bytes_max=2)}", "[ab]{1,2}"),
    ("{%s:text(allow='ab/',exclude='')}", "[ab/]+"),
    ("{%s:text(allow='ab',empty=true,bytes_max=2)}", "[ab]{0,2}"),
]

drawn_parts = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4)
Parts = list[tuple[str, str]]


def template_of(parts: Parts) -> Template:
    return text("".join(part.replace("%s", f"f{number}") for number, (part, _) in enumerate(parts)))


def expression(parts: Parts) -> re.Pattern[str]:
    return re.compile("".join(pattern for _, pattern in parts))


def strings() -> Iterator[str]:
    """All strings, short ones first, each length in reading order."""
    for length in range(BYTES_MAX + 1):
        yield from map("".join, product(ALPHABET, repeat=length))


def divisions(patterns: list[str], key: str) -> int:
    """In how many ways `key` is a member of each pattern in turn."""
    if not patterns:
        return int(not key)
    first = re.compile(patterns[0])
    ends = [end for end in range(len(key) + 1) if first.fullmatch(key[:end])]
    return sum(divisions(patterns[1:], key[end:]) for end in ends)


def within_reach(witness: bytes | None) -> str | None:
    return None if witness is None or len(witness) > BYTES_MAX else witness.decode()


def lint_witness(rule: str, *templates: Template) -> tuple[bytes | None, bytes | None]:
    names = [f"t{number}" for number in range(len(templates))]
    report = lint(layout(*(table(name, template) for name, template in zip(names, templates, strict=True))))
    found = [finding for finding in report.of_rule(rule) if finding.items == tuple(names)]
    return (found[0].witness, found[0].second) if found else (None, None)


@given(drawn_parts, drawn_parts)
def test_the_shortest_common_key_is_the_first_that_trying_all_strings_finds(first: Parts, second: Parts) -> None:
    one, other = expression(first), expression(second)
    expected = next((key for key in strings() if one.fullmatch(key) and other.fullmatch(key)), None)
    witness, _ = lint_witness("L1", template_of(first), template_of(second))
    assert within_reach(witness) == expected


@given(drawn_parts)
def test_the_shortest_ambiguous_key_is_the_first_with_two_divisions(parts: Parts) -> None:
    # Why: two neighbouring literals are one part of a template, but dividing them has one way as well.
    patterns = [pattern for _, pattern in parts]
    expected = next((key for key in strings() if divisions(patterns, key) > 1), None)
    witness, _ = lint_witness("L2", template_of(parts))
    assert within_reach(witness) == expected


@given(drawn_parts, drawn_parts)
def test_the_shortest_key_in_a_directory_is_the_first_below_a_key(parent: Parts, child: Parts) -> None:
    above, below = expression(parent), expression(child)
    expected = next(
        (
            (key[:cut], key)
            for key in strings()
            if below.fullmatch(key)
            for cut in range(len(key))
            if key[cut] == "/" and above.fullmatch(key[:cut])
        ),
        None,
    )
    directory, key = lint_witness("L3", template_of(parent), template_of(child))
    found = None if directory is None or within_reach(key) is None else (directory.decode(), within_reach(key))
    assert found == expected


@given(drawn_parts, drawn_parts)
def test_the_shortest_key_that_a_prefix_returns_is_the_first_that_begins_with_it(prefix: Parts, other: Parts) -> None:
    spec = layout(table("wanted", text("wanted")), table("other", template_of(other)))
    findings = lint_prefix(spec, template_of(prefix), returns=["wanted"])
    witness = next((finding.witness for finding in findings if finding.rule == "L4" and "other" in finding.items), None)
    assert within_reach(witness) == _first_below(prefix, other)


def _first_below(prefix: Parts, other: Parts) -> str | None:
    """The first string that is a key of `other` and begins with a member of `prefix`."""
    keys, beginning = expression(other), expression(prefix)
    return next(
        (key for key in strings() if keys.fullmatch(key) and beginning.match(key) and _begins(beginning, key)), None
    )


def _begins(beginning: re.Pattern[str], key: str) -> bool:
    return any(beginning.fullmatch(key[:cut]) for cut in range(len(key) + 1))
