"""The original's own clients, line by line: what its PowerShell cmdlets and its web page send, and what they can read.

A conversation is a text: `>` what is sent, `<` what must come, `@ N` that N seconds pass, `@@ N` that they pass while an answer
is waited for. An expected answer begins with its status, its content type (`-`: none; its second line is the Location), the
message that a strict client reads it as, and `ETag` where one must be there. `...` stands for anything.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    CloudChamber,
    CloudChamberGo,
    LayoutSide,
    go_inventory_records,
    inventory_records,
    read_definition,
    reconcile,
    validated,
)
from tests.apps.cloudchamber.site import Site, site_of
from tests.apps.cloudchamber.web import SETTINGS

CONVERSATIONS: Final = Path(__file__).parent / "conversations"

RIGHTS: Final = dict.fromkeys(
    [
        "canManageAccounts",
        "canStepTime",
        "canModifyWorkloads",
        "canModifyInventory",
        "canInjectFaults",
        "canPerformRepairs",
    ]
)
CAPACITY: Final = dict.fromkeys(["cores", "memoryInMb", "diskInGb", "networkBandwidthInMbps", "arch", "accelerators"])
OBSERVED: Final = dict.fromkeys(("at", "smState", "enteredAt"))
DEVICE: Final = {
    "details": {"enabled": None, "condition": None},
    "ports": {"*": {"wired": None, "item": dict.fromkeys(("type", "id", "port"))}},
    "observed": OBSERVED,
}
STATUS: Final = dict.fromkeys(("policy", "measuredDelay", "now", "waiterCount", "epoch"))
EVENT: Final = dict.fromkeys(
    ("tick", "severity", "name", "text", "stackTrace", "eventAction", "spanId", "linkId", "at")
)
ENTRY: Final = {
    **dict.fromkeys(
        ["name", "spanID", "parentID", "traceID", "status", "stackTrace", "infrastructure", "reason", "startingLink"]
    ),
    **dict.fromkeys(["linkSpanID", "linkTraceID", "startedAt", "endedAt"]),
    "event": [EVENT],
    "impacted": [{"impact": None, "name": None}],
}
DETAILS: Final = dict.fromkeys(("enabled", "condition", "state", "location", "notes"))
MESSAGES: Final[Mapping[str, Any]] = {
    "UserList": {"users": [dict.fromkeys(("name", "uri", "protected"))]},
    "UserPublic": {"enabled": None, "rights": RIGHTS, "neverDelete": None},
    "StatusResponse": STATUS,
    "Timestamp": {"ticks": None},
    "WatchResponse": {"expired": None, "statusResponse": STATUS},
    "ZoneSummary": {
        "racks": {"*": {"uri": None}},
        "maxCapacity": CAPACITY,
        "details": DETAILS,
        **dict.fromkeys(("maxBladeCount", "name", "maxTorCount", "maxPduCount", "maxConnectors")),
    },
    "Rack": {
        "details": DETAILS,
        "pdu": {},
        "tor": {},
        "blades": {"*": CAPACITY},
        "pdus": {"*": DEVICE},
        "tors": {"*": DEVICE},
        "fullBlades": {
            "*": {
                "details": {"enabled": None, "condition": None},
                "capacity": CAPACITY,
                "bootOnPowerOn": None,
                "bootInfo": dict.fromkeys(("source", "image", "version", "parameters")),
                "observed": OBSERVED,
            }
        },
    },
    "BladeCapacity": CAPACITY,
    "SimulationStatus": dict.fromkeys(("frontEndStartedAt", "inactivityTimeout")),
    "SessionSummary": {"sessions": [{"id": None, "uri": None}]},
    "SessionStatus": {"userName": None, "timeout": None},
    "GetPolicyResponse": {"maxEntriesHeld": None, "firstId": None},
    "GetAfterResponse": {"lastId": None, "missed": None, "entries": [{"id": None, "entry": ENTRY}]},
}
"""The fields that the clients' generated classes have; they refuse every other. None: a scalar, `*`: any key of a map."""


class Exchange(NamedTuple):
    """One request with what must come, and the seconds that pass before it and while it waits."""

    line: int
    request: list[str]
    answer: list[str]
    seconds_before: float
    seconds_within: float


def exchanges_of(name: str) -> Iterator[Exchange]:
    request: list[str] = []
    answer: list[str] = []
    before = within = 0.0
    begun = 0
    lines = (CONVERSATIONS / f"{name}.txt").read_text().splitlines()
    for number, line in enumerate([*lines, "# end"], 1):
        if answer and not line.startswith("<"):
            yield Exchange(begun, request, answer, before, within)
            request, answer, before, within = [], [], 0.0, 0.0
        if line.startswith("@@"):
            within = float(line[2:])
        elif line.startswith("@"):
            before = float(line[1:])
        elif line.startswith(">"):
            begun = begun if request else number
            request.append(line[2:])
        elif line.startswith("<"):
            answer.append(line[2:])


def strangers(found: Any, known: Any, path: str = "") -> Iterator[str]:
    """The fields that a client's class does not have."""
    if isinstance(found, list):
        for one in found:
            yield from strangers(one, known[0] if isinstance(known, list) else {}, path)
    elif isinstance(found, dict):
        for name, value in found.items():
            inner = known.get(name, known.get("*", False)) if isinstance(known, dict) else False
            if inner is False:
                yield f"{path}.{name}"
            else:
                yield from strangers(value, inner or {}, f"{path}.{name}")


def pattern_of(text: str) -> str:
    return "(?s:.*)".join(map(re.escape, text.split("...")))


async def asked(site: Site, client: httpx.AsyncClient, exchange: Exchange, etag: str) -> httpx.Response:
    head, _, body = "\n".join(exchange.request).partition("\n\n")
    first, *lines = head.split("\n")
    method, path = first.split(" ", 1)
    headers = dict(
        line.replace("{ETag}", etag).replace("{ETag digits}", etag.strip('"')).split(": ", 1) for line in lines
    )
    raw_path = path.encode()
    url = httpx.URL(scheme="http", host="127.0.0.1", raw_path=raw_path)
    site.clock.advance(exchange.seconds_before)
    sent = asyncio.create_task(client.request(method, url, headers=headers, content=body or None))
    while exchange.seconds_within and not sent.done():
        await asyncio.sleep(0.01)
        site.clock.advance(1)
    return await sent


async def replayed(site: Site, name: str) -> None:
    client, etag = site.client(), ""
    for exchange in exchanges_of(name):
        answer = await asked(site, client, exchange, etag)
        where = f"{name}.txt, line {exchange.line}: {exchange.request[0]}: {answer.text[:300]}"
        (status, *told), body = exchange.answer[0].split(" "), "\n".join(exchange.answer[1:])
        assert answer.status_code == int(status), where
        kind = " ".join(word for word in told if word not in {*MESSAGES, "ETag"})
        assert answer.headers.get("content-type", "-") == kind, where
        found = answer.headers.get("location", "") if kind == "-" else answer.text.removesuffix("\n")
        assert re.fullmatch(pattern_of(body), found), where
        for message in MESSAGES.keys() & set(told):
            assert list(strangers(json.loads(answer.text), MESSAGES[message])) == [], where
        if "ETag" in told:
            etag = answer.headers["etag"]
            assert re.fullmatch(r'"[^"]+"', etag), where


@pytest.mark.parametrize("side", LayoutSide)
@pytest.mark.parametrize("name", ["powershell", "web_page"])
def test_the_originals_clients_are_answered_as_the_original_answers(
    tmp_path: Path, samples: Path, name: str, side: LayoutSide
) -> None:
    url = f"lmdb:{tmp_path / 'kv'}?durability=none"
    definition = validated(read_definition(samples / "inventory.yaml"))
    with keyplan.open(url) as store:
        if side is LayoutSide.GO:
            reconcile(CloudChamberGo(store), go_inventory_records(definition))
        else:
            reconcile(CloudChamber(store), inventory_records(definition))
    page = tmp_path / "page"
    (page / "static" / "js").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html><script src=/static/js/main.js></script>")
    (page / "static" / "js" / "main.js").write_text("fetch('/api/racks')")
    with site_of(url, tmp_path, f"{SETTINGS}  rootFilePath: page\n") as site:
        site.run(lambda running: replayed(running, name))


def test_a_stranger_among_the_fields_is_noticed() -> None:
    """The proof can fail."""
    known = MESSAGES["ZoneSummary"]
    assert list(strangers({"racks": {"r": {"uri": "", "damaged": True}}, "name": ""}, known)) == [".racks.r.damaged"]
    assert list(strangers({"users": [{"name": ""}, {"odd": 1}]}, MESSAGES["UserList"])) == [".users.odd"]
    assert list(strangers({"expired": True, "revision": "1"}, MESSAGES["WatchResponse"])) == [".revision"]
