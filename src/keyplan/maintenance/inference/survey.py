"""The first look at a store: how many keys, text or binary, what divides them; a sample of the binary ones."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from keyplan.codec import Text
from keyplan.engine import Entry, KeyRange
from keyplan.maintenance.examine import SYSTEM_AREA
from keyplan.maintenance.inference.sample import Sample

__all__ = ["PROGRESS_EVERY_KEYS", "Scanned", "Survey", "is_own", "is_text_key", "take_survey"]

SEPARATORS: Final = "/:|#.;,\\"
"""What may divide keys into segments, the most usual first."""

SEPARATOR_SHARE_MIN: Final = 0.5
BINARY_SAMPLED: Final = 4096
"""Why: a kind of key that is one in a thousand is in such a sample, but for one time in sixty."""

PROGRESS_EVERY_KEYS: Final = 1024

_TEXT_KEYS_KEPT: Final = 16

_RAW_SEPARATORS: Final = tuple((separator, separator.encode()) for separator in SEPARATORS)

_is_text: Final = re.compile(Text(exclude="").language.pattern).fullmatch


def is_text_key(raw: bytes) -> bool:
    """Tell whether bytes are UTF-8 without control characters."""
    return _is_text(raw) is not None


@dataclass(slots=True)
class Survey:
    """What a first look at the keys found. `own` are keyplan's own keys, which are passed over."""

    keys: int = 0
    text_keys: int = 0
    own: int = 0
    with_separator: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SEPARATORS, 0))
    binary: Sample[None] = field(default_factory=lambda: Sample(BINARY_SAMPLED))
    text: list[bytes] = field(default_factory=list)
    """The first few text keys; others are in the sample of binary ones, among which some happen to be text."""

    @property
    def is_text(self) -> bool:
        """Whether most keys are text."""
        return 2 * self.text_keys >= self.keys

    @property
    def separator(self) -> str:
        """What most text keys are divided by; a slash when nothing divides them."""
        for separator, number in self.with_separator.items():
            if number and number >= SEPARATOR_SHARE_MIN * self.text_keys:
                return separator
        most = max(self.with_separator, key=lambda one: self.with_separator[one])
        return most if self.with_separator[most] else "/"


class Scanned(Protocol):
    """What is read of a snapshot."""

    def scan(self, key_range: KeyRange, *, keys_only: bool = ...) -> Iterator[Entry]:
        """Yield the entries in order."""
        ...


def take_survey(snapshot: Scanned, prefix: bytes, progress: Callable[[int], None] | None) -> Survey:
    """Look at every key of a snapshot below a prefix once. Values are not read."""
    survey = Survey()
    counts = survey.with_separator
    for number, entry in enumerate(snapshot.scan(KeyRange.of_prefix(prefix), keys_only=True), start=1):
        if progress is not None and number % PROGRESS_EVERY_KEYS == 0:
            progress(number)
        if is_own(entry.key, prefix):
            survey.own += 1
            continue
        survey.keys += 1
        if _is_text(entry.key) is None:
            survey.binary.add(entry.key, None)
            continue
        survey.text_keys += 1
        if len(survey.text) < _TEXT_KEYS_KEPT:
            survey.text.append(entry.key)
        elif survey.text_keys < survey.keys:
            survey.binary.add(entry.key, None)  # Why not always: in a store of text alone nobody asks for them.
        for separator, raw in _RAW_SEPARATORS:
            if raw in entry.key:
                counts[separator] += 1
    return survey


def is_own(key: bytes, prefix: bytes) -> bool:
    """Tell whether a key is keyplan's own: index states, the registry. Asked for by a prefix, they are looked at."""
    return key.startswith(SYSTEM_AREA) and not prefix.startswith(SYSTEM_AREA)
