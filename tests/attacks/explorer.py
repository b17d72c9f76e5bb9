"""The attacks on the explorer."""

from typing import Final

from keyplan.server import service_builders
from tests.attacks.form import Answer, Attacker, Row
from tests.attacks.world import HIDDEN, SENTINEL, VALUE

__all__ = ["ROW"]

READ_ONLY: Final = "nothing can be written there"

ROW: Final = Row(
    "explorer",
    service_builders(["explorer"]),
    settings={"keyspaces.sweep": "off"},
    without={
        **dict.fromkeys(("write", "write beside", "delete", "delete all", "condition", "compaction"), READ_ONLY),
        "lease take-up": "a lease is shown beside what hangs on it, and cannot be asked for",
        "lease revoke": "a lease is shown beside what hangs on it, and cannot be asked for",
    },
)


def pages(attacker: Attacker, *paths: str) -> Answer:
    """Ask for pages, each in both forms; the status is that of the first."""
    told = [attacker.ask("GET", path, Accept=kind) for path in paths for kind in ("application/json", "text/html")]
    assert all(one.status < 500 for one in told), told
    return Answer(told[0].status, "\n".join(one.text for one in told))


def area_of(attacker: Attacker) -> str:
    return f"/explore/in/{attacker.place.keyspace}"


def hex_of(text: str) -> str:
    return text.encode().hex()


@ROW.attack("read")
def read(attacker: Attacker) -> Answer:
    known = attacker.place.known
    return pages(
        attacker,
        f"{area_of(attacker)}/key?hex={hex_of('known')}",
        f"/explore/in/-/key?hex={hex_of(known)}",
        f"/explore/find?key={known}",
        f"/explore/find?key=known&area={attacker.place.keyspace}",
    )


@ROW.attack("list")
def list_place(attacker: Attacker) -> Answer:
    return pages(
        attacker,
        f"{area_of(attacker)}/raw",
        f"{area_of(attacker)}/",
        f"/explore/in/-/raw?hex={hex_of(attacker.place.prefix)}",
        f"/explore/in/-/key?hex={hex_of(attacker.place.known + '0')}",
    )


@ROW.attack("list across")
def list_across(attacker: Attacker) -> Answer:
    told = pages(attacker, "/explore/in/-/raw?limit=500", "/explore/in/-/raw?hex=2f&limit=500")
    place = attacker.place.prefix.strip("/")
    return told._replace(is_reached=f'"{place}/"' in told.text or f"/{place}/" in told.text)


@ROW.attack("list all")
def list_all(attacker: Attacker) -> Answer:
    told = pages(attacker, "/explore/", "/explore/in/-/")
    return told._replace(is_reached=attacker.place.keyspace in told.text)


@ROW.attack("count")
def count(attacker: Attacker) -> Answer:
    told = attacker.ask("GET", f"{area_of(attacker)}/?format=json")
    return told._replace(is_reached=told.status == 200 and told.json()["keyspace"]["keys"]["number"] > 0)


def watched(attacker: Attacker, path: str) -> Answer:
    with attacker.stream("GET", path) as stream:
        if stream.status != 200:
            return Answer(stream.status, stream.rest())
        stream.until("event: open")
        attacker.happens()
        return Answer(stream.status, stream.until(VALUE, SENTINEL, "event: failed", "event: compacted"))


@ROW.attack("watch")
def watch(attacker: Attacker) -> Answer:
    whole = watched(attacker, f"/explore/in/-/changes?hex={hex_of(attacker.place.prefix)}")
    own = watched(attacker, f"{area_of(attacker)}/changes")
    return Answer(own.status, own.text + whole.text)


@ROW.attack("watch all")
def watch_all(attacker: Attacker) -> Answer:
    return watched(attacker, "/explore/in/-/changes")


@ROW.attack("watch past")
def watch_past(attacker: Attacker) -> Answer:
    whole = watched(attacker, f"/explore/in/-/changes?hex={hex_of(attacker.place.prefix)}&after=1")
    own = watched(attacker, f"{area_of(attacker)}/changes?after=1")
    return Answer(own.status, own.text + whole.text)


@ROW.attack("page token")
def page_token(attacker: Attacker) -> Answer:
    prefix, known = hex_of(attacker.place.prefix), hex_of(attacker.place.prefix + HIDDEN[:1])
    told = pages(
        attacker,
        f"/explore/in/-/raw?hex={prefix}&page={known}",
        f"/explore/in/-/raw?page={known}",
        f"{area_of(attacker)}/raw?page={hex_of(HIDDEN[:1])}",
        "/explore/?page=0",
        "/explore/?page=1",
    )
    is_named = attacker.who != attacker.place.application and attacker.place.keyspace in told.text.partition("/raw")[0]
    return told._replace(is_reached=is_named)


@ROW.attack("registry")
def registry(attacker: Attacker) -> Answer:
    told = pages(attacker, "/explore/in/-/raw?hex=00&limit=500", "/explore/in/-/list/keyspace/records")
    names = (attacker.place.keyspace, hex_of(attacker.place.keyspace))
    return told._replace(is_reached=any(name in told.text for name in names))


@ROW.attack("encodings")
def encodings(attacker: Attacker) -> Answer:
    name, rest = attacker.place.keyspace, f"/key?hex={hex_of('known')}"
    areas = (
        f"%{ord(name[0]):02X}{name[1:]}",
        f"-/../{name}",
        f"%2E%2E/in/{name}",
        f"{name}%00",
        f"{name}%2F",
        f"/{name}",
        f"-%2F..%2F{name}",
        name.upper(),
        f"%20{name}",
    )
    return pages(attacker, *(f"/explore/in/{area}{rest}" for area in areas))


@ROW.attack("long")
def long(attacker: Attacker) -> Answer:
    told = pages(attacker, f"{area_of(attacker)}/key?hex={'6b' * 5_000}", f"/explore/in/-/key?hex={'6b' * 5_000}")
    # Why its own words: for the owner it is a key that is not there.
    return told._replace(is_reached=told.status == 200)
