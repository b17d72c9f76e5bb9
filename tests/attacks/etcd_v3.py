"""The attacks on the JSON gateway of etcd v3."""

from base64 import b64encode
from typing import Any, Final

from msgspec import json

from keyplan.server import etcd_v3
from tests.attacks.form import Answer, Attacker, Row
from tests.attacks.world import SENTINEL, VALUE

__all__ = ["ROW"]

ROW: Final = Row(
    "etcd-v3",
    {"etcd-v3": etcd_v3.build},
    without={
        "page token": "a list goes on from a key, by the limit: it has no tokens",
        "encodings": "keys are base64 in JSON, and have one spelling",
    },
)

LAST: Final = b64encode(b"\x00").decode()
EVERY: Final = {"key": LAST, "range_end": LAST}


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def below(prefix: str) -> dict[str, str]:
    return {"key": b64(prefix), "range_end": b64(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


def one(key: str, **more: Any) -> dict[str, Any]:
    return {"key": b64(key), **more}


def call(attacker: Attacker, path: str, message: object) -> Answer:
    return attacker.post(f"/v3/{path}", message)


@ROW.attack("read")
def read(attacker: Attacker) -> Answer:
    return call(attacker, "kv/range", one(attacker.place.known))


@ROW.attack("list")
def list_place(attacker: Attacker) -> Answer:
    return call(attacker, "kv/range", below(attacker.place.prefix))


@ROW.attack("list across")
def list_across(attacker: Attacker) -> Answer:
    first, last = sorted((attacker.own_key, attacker.place.known))
    return call(attacker, "kv/range", {"key": b64(first), "range_end": b64(last + "z")})


@ROW.attack("list all")
def list_all(attacker: Attacker) -> Answer:
    asked = below(attacker.place.prefix) if attacker.who == attacker.place.application else EVERY
    return call(attacker, "kv/range", {**asked, "sort_target": "VALUE"})


@ROW.attack("count")
def count(attacker: Attacker) -> Answer:
    told = call(attacker, "kv/range", {**below(attacker.place.prefix), "count_only": True})
    return told._replace(is_reached=told.status == 200 and told.json().get("count", "0") != "0")


def watched(attacker: Attacker, request: dict[str, Any]) -> Answer:
    with attacker.stream("POST", "/v3/watch", json.encode({"create_request": request})) as stream:
        if stream.status != 200 or '"canceled":true' in stream.until('"created":true'):
            return Answer(stream.status, stream.rest())
        attacker.happens()
        return Answer(stream.status, stream.until(VALUE, SENTINEL))


@ROW.attack("watch")
def watch(attacker: Attacker) -> Answer:
    return watched(attacker, {**below(attacker.place.prefix), "prev_kv": True})


@ROW.attack("watch all")
def watch_all(attacker: Attacker) -> Answer:
    return watched(attacker, below("/bank/") if attacker.who == attacker.place.application else EVERY)


@ROW.attack("watch past")
def watch_past(attacker: Attacker) -> Answer:
    return watched(attacker, {**below(attacker.place.prefix), "start_revision": "1"})


@ROW.attack("write", writes=True)
def write(attacker: Attacker) -> Answer:
    return call(attacker, "kv/put", one(attacker.place.known, value=b64("stolen")))


@ROW.attack("write beside", writes=True)
def write_beside(attacker: Attacker) -> Answer:
    puts = [{"request_put": one(key, value=b64("x"))} for key in (attacker.own_key, attacker.place.prefix + "new")]
    return call(attacker, "kv/txn", {"success": [puts[0], {"request_txn": {"success": [puts[1]]}}]})


@ROW.attack("delete", writes=True)
def delete(attacker: Attacker) -> Answer:
    return call(attacker, "kv/deleterange", one(attacker.place.known, prev_kv=True))


@ROW.attack("delete all", writes=True)
def delete_all(attacker: Attacker) -> Answer:
    return call(attacker, "kv/deleterange", {**below(attacker.place.prefix), "prev_kv": True})


@ROW.attack("condition")
def condition(attacker: Attacker) -> Answer:
    compares: list[dict[str, Any]] = [
        {**one(attacker.place.known), "target": "VERSION", "version": "0", "result": "GREATER"},
        {**below(attacker.place.prefix), "target": "LEASE", "lease": "0"},
    ]
    told = [call(attacker, "kv/txn", {"compare": [compare]}) for compare in compares]
    found = [answer for answer in told if answer.status == 200 and "succeeded" in answer.json()]
    return told[0]._replace(is_reached=bool(found))


def lease_of(attacker: Attacker) -> str:
    owner = attacker.owner()
    granted = call(owner, "lease/grant", {"TTL": "600"})
    if granted.status != 200:
        return "7243912"
    lease: str = granted.json()["ID"]
    call(owner, "kv/put", one(attacker.place.prefix + "leased", value=b64("x"), lease=lease))
    return lease


@ROW.attack("lease take-up")
def lease_take_up(attacker: Attacker) -> Answer:
    lease = lease_of(attacker)
    kept = call(attacker, "lease/keepalive", {"ID": lease})
    shown = call(attacker, "lease/timetolive", {"ID": lease, "keys": True})
    hung = call(attacker, "kv/put", one(attacker.own_key, value=b64("x"), lease=lease))
    is_reached = (
        '"TTL"' in kept.text.partition('"ID"')[2]
        or (shown.status == 200 and shown.json()["TTL"] != "-1")
        or hung.status == 200
    )
    call(attacker.owner(), "lease/revoke", {"ID": lease})
    return kept._replace(is_reached=is_reached)


@ROW.attack("lease revoke")
def lease_revoke(attacker: Attacker) -> Answer:
    lease = lease_of(attacker)
    told = call(attacker, "lease/revoke", {"ID": lease})
    call(attacker.owner(), "lease/revoke", {"ID": lease})
    return told._replace(is_reached=told.status == 200)


@ROW.attack("compaction")
def compaction(attacker: Attacker) -> Answer:
    owner = attacker.owner()
    begin = call(owner, "kv/put", one(attacker.place.prefix + "history", value=b64("1")))
    if begin.status != 200:
        call(attacker, "kv/compaction", {"revision": "3"})
        return Answer(200, "")
    revision = begin.json()["header"]["revision"]
    call(owner, "kv/put", one(attacker.place.prefix + "history", value=b64("2")))
    told = call(attacker, "kv/compaction", {"revision": str(int(revision) + 1)})
    message = {**below(attacker.place.prefix), "start_revision": revision}
    with owner.stream("POST", "/v3/watch", json.encode({"create_request": message})) as stream:
        seen = stream.until('"events"', '"compact_revision"')
    call(owner, "kv/deleterange", one(attacker.place.prefix + "history"))
    # Why nothing of the answer: who may read anything has a history of their own to forget.
    return Answer(200, "", is_reached='"compact_revision"' in seen or (told.status == 200 and seen == ""))


@ROW.attack("registry")
def registry(attacker: Attacker) -> Answer:
    messages = [one("\x00kp\x03ledger\x00"), below("\x00kp"), below("\x00ac"), below("\x00e2")]
    told = [call(attacker, "kv/range", message) for message in messages]
    told.append(call(attacker, "kv/deleterange", below("\x00")))
    is_read = any(answer.status == 200 and answer.json().get("kvs") for answer in told)
    return told[0]._replace(is_reached=is_read)


@ROW.attack("long")
def long(attacker: Attacker) -> Answer:
    told = call(attacker, "kv/range", one(attacker.place.prefix + "k" * 100_000))
    # Why its own words: for the owner it is a key that is not there.
    return told._replace(is_reached=told.status == 200)
