"""The formats that a property's schema may ask for, checked by the standard library alone.

Why own checks: the jsonschema package leaves half of them unchecked unless further packages are there, without a word.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, time
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import urlsplit

from jsonschema import FormatChecker

from keyplan.apps.runm.patterns import is_pattern

__all__ = ["FORMATS", "FORMAT_NAMES"]

_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME: Final = re.compile(r"\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_LOCAL_PART: Final = re.compile(r"[^\s@\"(),:;<>\[\\\]]{1,64}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_REFERENCE: Final = re.compile(r"([^\s<>\"{}|\\^`%]|%[0-9A-Fa-f]{2})*")
_EXPRESSION: Final = re.compile(r"\{[+#./;?&]?[A-Za-z0-9_.%]+(:\d{1,4}|\*)?(,[A-Za-z0-9_.%]+(:\d{1,4}|\*)?)*\}")


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None and _parses(date.fromisoformat, text)


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None and _parses(time.fromisoformat, text.upper())


def _is_date_time(text: str) -> bool:
    day, mark, rest = text[:10], text[10:11], text[11:]
    return mark in {"T", "t"} and _is_date(day) and _is_time(rest) and _parses(datetime.fromisoformat, text.upper())


def _is_hostname(text: str) -> bool:
    return 0 < len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split("."))


def _is_idn_hostname(text: str) -> bool:
    try:
        return _is_hostname(text.encode("idna").decode())
    except UnicodeError:
        return False


def _is_email(text: str) -> bool:
    return text.isascii() and _is_mailbox(text, _is_hostname)


def _is_idn_email(text: str) -> bool:
    return _is_mailbox(text, _is_idn_hostname)


def _is_mailbox(text: str, is_host: Callable[[str], bool]) -> bool:
    local, at, host = text.rpartition("@")
    is_dotted_well = ".." not in local and not local.startswith(".") and not local.endswith(".")
    return bool(at) and is_dotted_well and _LOCAL_PART.fullmatch(local) is not None and is_host(host)


def _is_iri_reference(text: str) -> bool:
    return _REFERENCE.fullmatch(text) is not None and _parses(urlsplit, text)


def _is_iri(text: str) -> bool:
    return _SCHEME.match(text) is not None and _is_iri_reference(text)


def _is_uri_reference(text: str) -> bool:
    return text.isascii() and _is_iri_reference(text)


def _is_uri(text: str) -> bool:
    return text.isascii() and _is_iri(text)


def _is_uri_template(text: str) -> bool:
    return _is_iri_reference(_EXPRESSION.sub("x", text))


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, OverflowError):
        return False
    return True


_CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "date-time": _is_date_time,
    "date": _is_date,
    "time": _is_time,
    "email": _is_email,
    "idn-email": _is_idn_email,
    "hostname": _is_hostname,
    "idn-hostname": _is_idn_hostname,
    "ipv4": lambda text: _parses(IPv4Address, text),
    "ipv6": lambda text: "%" not in text and _parses(IPv6Address, text),
    "uri": _is_uri,
    "uri-reference": _is_uri_reference,
    "iri": _is_iri,
    "iri-reference": _is_iri_reference,
    "uri-template": _is_uri_template,
}

FORMAT_NAMES: Final = tuple(_CHECKS)
"""The formats that a definition document may name."""


def _checker() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name, is_fit in {**_CHECKS, "regex": is_pattern}.items():
        checker.checks(name)(lambda value, is_fit=is_fit: not isinstance(value, str) or is_fit(value))
    return checker


FORMATS: Final = _checker()
"""Every format above, and `regex`, which schemas themselves are checked by."""
