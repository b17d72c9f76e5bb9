"""The tables of docs/design/key-encoding.md, read as data."""

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from keyplan.codec import Automaton, Element, SingleFloat, Versionstamp, element_of_spec

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "design" / "key-encoding.md"

_ROW = re.compile(r"\| `(?P<spec>[^`]+)` \| (?P<second>`[^`]*`|\(nothing\)) \| (?P<third>.*) \|")
_NAMES = {"UUID": UUID, "SingleFloat": SingleFloat, "Versionstamp": Versionstamp, "float": float, "int": int}


class Vector(NamedTuple):
    """A value and its bytes."""

    spec: str
    value: Any
    raw: bytes


class Refusal(NamedTuple):
    """Bytes that are no member, and why."""

    spec: str
    raw: bytes
    reason: str


def sections() -> dict[str, str]:
    """The text of each codec's section by code."""
    pieces = re.split(r"^## `([a-z0-9_]+)`$", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(
        zip(pieces[1::2], (re.split(r"^## ", piece, flags=re.MULTILINE)[0] for piece in pieces[2::2]), strict=True)
    )


@cache
def vectors() -> tuple[Vector, ...]:
    """Every row of the value tables. Literals are read as Python writes them."""
    return tuple(
        Vector(row["spec"], eval(row["second"].strip("`"), dict(_NAMES)), _bytes(row["third"]))
        for heading, row in _rows()
        if heading == "value"
    )


@cache
def refusals() -> tuple[Refusal, ...]:
    """Every row of the refused tables."""
    return tuple(
        Refusal(row["spec"], _bytes(row["second"]), row["third"])
        for heading, row in _rows()
        if heading == "refused hex"
    )


@cache
def specs() -> tuple[str, ...]:
    """Every spec that the document shows: each registered codec, with several parameters."""
    return tuple(dict.fromkeys(vector.spec for vector in vectors()))


@cache
def element(spec: str) -> Element[Any]:
    return element_of_spec(spec)


@cache
def automaton(spec: str, *, relaxed: bool) -> Automaton:
    return element(spec).language.automaton(relaxed=relaxed)


def automaton_accepts(machine: Automaton, raw: bytes) -> bool:
    states = frozenset({0})
    for byte in raw:
        states = machine.step(states, byte)
    return not states.isdisjoint(machine.accepting)


def _rows() -> list[tuple[str, re.Match[str]]]:
    found: list[tuple[str, re.Match[str]]] = []
    for section in sections().values():
        heading = ""
        for line in section.splitlines():
            if line.startswith("| codec |"):
                heading = line.split("|")[2].strip()
            elif match := _ROW.fullmatch(line):
                found.append((heading, match))
    return found


def _bytes(cell: str) -> bytes:
    return b"" if cell == "(nothing)" else bytes.fromhex(cell.strip("`"))
