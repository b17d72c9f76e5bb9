"""The attacks on the v2 keys API of etcd."""

from typing import Final
from urllib.parse import quote

from keyplan.server import etcd_v2
from tests.attacks.form import Answer, Attacker, Row
from tests.attacks.world import SENTINEL, VALUE

__all__ = ["ROW"]

ROW: Final = Row(
    "etcd-v2",
    {"etcd-v2": etcd_v2.build},
    without={
        "lease take-up": "a TTL has no name",
        "lease revoke": "a TTL has no name",
        "compaction": "nobody can ask for it",
        "page token": "lists have no pages",
        "write beside": "a request writes one key",
        "registry": "no path spells keyplan's own keys, for nobody: what tries to is among the spellings",
    },
)

FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
ODD: Final = ("%2F", "%00", "%0A", "%20", "%2E%2E%2F", "..%2F", "//", "/./", "%252F", "\u00e9", "%ff", ";", "?", "%3F")


def keys(attacker: Attacker, method: str, key: str, query: str = "", **form: str) -> Answer:
    """Send a request for a key, whose path stands as it is given."""
    body = "&".join(f"{name}={quote(value)}" for name, value in form.items()).encode()
    return attacker.ask(method, f"/v2/keys{key}{query}", body or None, **(FORM if body else {}))


@ROW.attack("read")
def read(attacker: Attacker) -> Answer:
    return keys(attacker, "GET", attacker.place.known)


@ROW.attack("list")
def list_place(attacker: Attacker) -> Answer:
    return keys(attacker, "GET", attacker.place.prefix, "?recursive=true&sorted=true")


@ROW.attack("list across")
def list_across(attacker: Attacker) -> Answer:
    return keys(attacker, "GET", "/", "?recursive=true")


@ROW.attack("list all")
def list_all(attacker: Attacker) -> Answer:
    root, place = keys(attacker, "GET", "/"), keys(attacker, "GET", attacker.place.prefix.rstrip("/"))
    name = attacker.place.prefix.rstrip("/")
    return Answer(root.status, root.text + place.text, is_reached=f'"key":"{name}"' in root.text)


@ROW.attack("count")
def count(attacker: Attacker) -> Answer:
    told = keys(attacker, "GET", attacker.place.prefix)
    return told._replace(is_reached=told.status == 200 and len(told.json()["node"].get("nodes", [])) > 0)


def watched(attacker: Attacker, key: str, query: str) -> Answer:
    with attacker.stream("GET", f"/v2/keys{key}?wait=true&stream=true&{query}") as stream:
        if stream.status != 200:
            return Answer(stream.status, stream.rest())
        attacker.happens()
        return Answer(stream.status, stream.until(VALUE, SENTINEL))


@ROW.attack("watch")
def watch(attacker: Attacker) -> Answer:
    once = f"/v2/keys{attacker.place.known}?wait=true"
    with attacker.stream("GET", once) as stream:
        told = Answer(stream.status, stream.rest()) if stream.status != 200 else None
    return watched(attacker, attacker.place.prefix, "recursive=true") if told is None else told


@ROW.attack("watch all")
def watch_all(attacker: Attacker) -> Answer:
    return watched(attacker, "/", "recursive=true")


@ROW.attack("watch past")
def watch_past(attacker: Attacker) -> Answer:
    # Why written first: what was there before the first v2 client came has no number.
    keys(attacker.owner(), "PUT", attacker.place.known, value=VALUE + " past")
    return watched(attacker, attacker.place.prefix, "recursive=true&waitIndex=1")


@ROW.attack("write", writes=True)
def write(attacker: Attacker) -> Answer:
    told = keys(attacker, "PUT", attacker.place.known, value="stolen")
    keys(attacker, "PUT", attacker.place.prefix + "made", "?prevExist=false", value="stolen", ttl="100")
    keys(attacker, "POST", attacker.place.prefix, value="stolen")
    keys(attacker, "PUT", attacker.place.prefix + "made", "?dir=true", ttl="1")
    keys(attacker, "PUT", attacker.place.prefix, "?dir=true&prevExist=true", ttl="1")
    keys(attacker, "PUT", attacker.place.known, "?prevExist=true&refresh=true", ttl="1")
    return told


@ROW.attack("delete", writes=True)
def delete(attacker: Attacker) -> Answer:
    return keys(attacker, "DELETE", attacker.place.known)


@ROW.attack("delete all", writes=True)
def delete_all(attacker: Attacker) -> Answer:
    told = [
        keys(attacker, "DELETE", key, query)
        for key in (attacker.place.prefix, "/")
        for query in ("?recursive=true", "?dir=true", "?recursive=true&dir=true")
    ]
    return told[0]


@ROW.attack("condition")
def condition(attacker: Attacker) -> Answer:
    known = attacker.place.known
    told = [
        keys(attacker, "PUT", known, "?prevIndex=1", value="stolen"),
        keys(attacker, "PUT", known, "?prevValue=guessed", value="stolen"),
        keys(attacker, "DELETE", known, "?prevValue=guessed"),
        keys(attacker, "PUT", known, "?prevExist=false", value="stolen"),
    ]
    return Answer(told[0].status, "".join(one.text for one in told), is_reached=any(one.status == 412 for one in told))


@ROW.attack("encodings")
def encodings(attacker: Attacker) -> Answer:
    known, prefix = attacker.place.known, attacker.place.prefix
    own = attacker.own_key.rpartition("/")[0]
    paths = [
        known.replace("/", "%2F"),
        "/" + known,
        f"{own}/..{known}",
        f"{own}/%2E%2E{known}",
        f"{own}%2F..%2F..{known}",
        "".join(f"%{ord(letter):02X}" for letter in known),
        known + "/",
        known + "/.",
        *(quote(prefix + odd, safe="/%;?") + "known" for odd in ODD),
    ]
    told = [keys(attacker, "GET", path, "?quorum=true") for path in paths]
    of_keyplan = [keys(attacker, "GET", path) for path in ("/%00kp", "/%00e2s", "%00kp", "/..%00kp")]
    assert all(one.status < 500 for one in told), list(zip(paths, told, strict=True))
    assert all(one.status != 200 and one.status < 500 for one in of_keyplan), of_keyplan
    return Answer(told[0].status, "".join(one.text for one in told))


@ROW.attack("long")
def long(attacker: Attacker) -> Answer:
    # Why its own words: for the owner it is a key that is not there.
    told = keys(attacker, "GET", attacker.place.prefix + "k" * 20_000)
    deep = keys(attacker, "PUT", attacker.place.prefix + "d/" * 150 + "k", value=VALUE)
    return Answer(told.status, told.text + deep.text, is_reached=told.status == 404)
