"""What a real etcd 3.4.23 was asked and answered, read from `recorded/`; and answers in a form that can be compared."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["Answer", "Recorded", "ask", "normal", "recorded_requests", "recorded_watches"]

_FOLDER: Final = Path(__file__).parent / "recorded"
_ADDRESS: Final = "http://127.0.0.1:22379"
_OPTION: Final = re.compile(r" (?=-(?:X|d |F |I$|-data-urlencode |-max-time |-path-as-is))")
_KEPT_HEADERS: Final = ("content-type", "x-etcd-index", "allow", "location", "transfer-encoding")
_PRESENT_HEADERS: Final = ("x-etcd-cluster-id", "x-raft-index", "x-raft-term")


class Answer(NamedTuple):
    """Status, headers by lower-case name, body."""

    status: int
    headers: dict[str, str]
    body: str


class Recorded(NamedTuple):
    """A request, as a path and curl's options, and its answer."""

    title: str
    path: str
    options: tuple[str, ...]
    answer: Answer


def recorded_requests() -> list[Recorded]:
    """The requests in order."""
    return list(_requests((_FOLDER / "requests.txt").read_text()))


def _requests(text: str) -> Iterator[Recorded]:
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        url, *pieces = _OPTION.split(title)
        options = tuple(word for piece in pieces for word in _words(piece))
        yield Recorded(title, url.removeprefix(_ADDRESS), options, parse(rest))


def _words(piece: str) -> tuple[str, ...]:
    """`-XPUT` is one word, `-d value=Hello world` two: the recording has no quotes."""
    name, space, value = piece.partition(" ")
    return (name, value) if space else (name,)


class RecordedWatch(NamedTuple):
    """A wait, the shell commands that went on meanwhile, and what the wait was answered."""

    title: str
    path: str
    commands: tuple[tuple[str, tuple[str, ...]], ...]
    answer: Answer


def recorded_watches() -> list[RecordedWatch]:
    """The waits in order; the address is taken out of their commands."""
    watches: list[RecordedWatch] = []
    for part in re.split(r"^### ", (_FOLDER / "watches.txt").read_text(), flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        title, url, script = (piece.strip() for piece in head.rpartition(" (curl rc=")[0].split(" :: "))
        commands = [shlex.split(one)[2:] for one in script.split(";") if "curl" in one]
        plain = tuple((words[0].removeprefix(_ADDRESS), tuple(words[1:])) for words in commands if words)
        watches.append(RecordedWatch(title, url.removeprefix(_ADDRESS), plain, parse(rest)))
    return watches


def parse(text: str) -> Answer:
    """Read an answer as curl prints it with its headers; with more than one, the last counts."""
    lines = text.strip("\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith("HTTP/1.1 ")]
    start = starts[0]
    headers: dict[str, str] = {}
    number = start + 1
    while number < len(lines) and re.match(r"[A-Za-z-]+: ", lines[number]):
        name, _, value = lines[number].partition(": ")
        headers[name.lower()] = value
        number += 1
    body = "\n".join(line for line in lines[number:] if not line.startswith(("HTTP/1.1", "index now", "curl:")))
    return Answer(int(lines[start].split()[1]), headers, "" if len(starts) > 1 else body.strip())


def ask(address: str, path: str, options: tuple[str, ...], *, seconds_max: float = 5.0) -> Answer:
    """Ask by the real curl."""
    done = subprocess.run(
        ["curl", "-s", "-i", "--max-time", str(seconds_max), *options, address + path],
        capture_output=True,
        text=True,
        check=False,
    )
    head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
    return parse(head)._replace(body=body.strip())


def normal(answer: Answer) -> dict[str, Any]:
    """What must be equal: everything but times, ids, raft numbers and the order of a listing that nobody sorted."""
    headers: dict[str, str] = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    headers |= {str(name): "present" for name in _PRESENT_HEADERS if name in answer.headers}
    return {"status": answer.status, "headers": headers, "body": _normal_body(answer.body)}


def _normal_body(body: str) -> Any:
    lines = [line for line in body.split("\n") if line]
    try:
        return [_without_times(json.loads(line)) for line in lines]
    except ValueError:
        return body


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        if "nodes" in value:
            value = value | {"nodes": sorted(value["nodes"], key=lambda node: str(node["key"]))}
        plain = {name: _without_times(part) for name, part in value.items() if name != "ttl"}
        if "expiration" in plain:
            plain["expiration"] = "a time"
        # Invariant: the order of fields is compared as well.
        return list(plain.items())
    if isinstance(value, list):
        return [_without_times(part) for part in value]
    return value
