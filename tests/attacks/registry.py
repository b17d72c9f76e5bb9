"""The attacks on the registry of key spaces over HTTP."""

from typing import Final
from urllib.parse import quote

from msgspec import json

from keyplan.server import service_builders
from tests.attacks.form import Answer, Attacker, Row
from tests.attacks.world import BANK, VALUE, Place, World

__all__ = ["ROW"]


class RegistryRow(Row):
    """What is hidden here stands in descriptions: an application writes what it likes there."""

    def settle(self, world: World) -> None:
        for keyspace in world.registry.list().keyspaces:
            if keyspace.prefix == BANK.prefix.encode().hex():
                world.registry.update(keyspace.name, VALUE)


ROW: Final = RegistryRow(
    "registry",
    service_builders([]),
    settings={"keyspaces.sweep": "off"},
    has_data=False,
    without={
        "watch": "the registry has no watches over HTTP",
        "watch all": "the registry has no watches over HTTP",
        "watch past": "the registry has no watches over HTTP",
        "lease take-up": "sessions are shown, and leases are not",
        "lease revoke": "sessions are shown, and leases are not",
        "compaction": "its audit log is never cut",
        "write beside": "a request is on one key space",
        "list across": "a list is of all key spaces",
        "long": "a name that is too long is nobody's, and refused like any that is not granted",
    },
)


def path_of(place: Place, rest: str = "") -> str:
    return f"/keyspaces/{place.keyspace}{rest}"


@ROW.attack("read")
def read(attacker: Attacker) -> Answer:
    return attacker.ask("GET", path_of(attacker.place))


@ROW.attack("list")
def list_place(attacker: Attacker) -> Answer:
    found = [
        attacker.ask("GET", f"/keyspaces?{query}")
        for query in (
            f"name={attacker.place.keyspace}",
            f"application={attacker.place.application}",
            f"prefix={attacker.place.prefix.encode().hex()}",
            f"key={attacker.place.known.encode().hex()}",
        )
    ]
    return Answer(found[0].status, "\n".join(one.text for one in found))


@ROW.attack("list all")
def list_all(attacker: Attacker) -> Answer:
    return attacker.ask("GET", "/keyspaces?include=all&limit=1000")


@ROW.attack("page token")
def page_token(attacker: Attacker) -> Answer:
    return attacker.ask("GET", "/keyspaces?page_token=0&limit=1")


@ROW.attack("count")
def count(attacker: Attacker) -> Answer:
    """Go through pages of one: that another one follows tells that there is one."""
    shown, pages, token = 0, 0, ""
    is_of_another = attacker.who in {"bank", "shop"} and attacker.who != attacker.place.application
    own = 1 if is_of_another else 0
    while True:
        told = attacker.ask("GET", f"/keyspaces?limit=1&page_token={quote(token)}")
        if told.status != 200:
            return told
        shown, pages, token = shown + len(told.json()["keyspaces"]), pages + 1, told.json()["next_page_token"]
        if not token:
            return Answer(200, f"{shown} in {pages}", is_reached=pages > max(shown, 1) or shown > own)


@ROW.attack("write", writes=True)
def write(attacker: Attacker) -> Answer:
    body = b'{"description":"stolen"}'
    told = attacker.ask("PUT", path_of(attacker.place), body, **{"Content-Type": "application/json"})
    quota = attacker.ask(
        "PUT", path_of(attacker.place, "/quota"), b'{"keys":1}', **{"Content-Type": "application/json"}
    )
    return Answer(told.status, told.text + quota.text)


@ROW.attack("delete", writes=True)
def delete(attacker: Attacker) -> Answer:
    return attacker.post(path_of(attacker.place, ":disable"), {})


@ROW.attack("delete all", writes=True)
def delete_all(attacker: Attacker) -> Answer:
    told = attacker.ask("DELETE", path_of(attacker.place))
    swept = attacker.post(path_of(attacker.place, ":sweep"), {})
    return Answer(told.status, told.text + swept.text)


@ROW.attack("condition", tells="names are the registry's: one that is taken is taken for everybody")
def condition(attacker: Attacker) -> Answer:
    place = attacker.place
    asked = {"name": place.keyspace, "application": place.application, "if_not_exists": True}
    told = [attacker.post("/keyspaces", asked)]
    if place is BANK and attacker.who == "shop":
        told.append(attacker.post("/keyspaces", {**asked, "application": attacker.who}))
        told.append(
            attacker.post("/keyspaces", {"name": "new", "application": "shop", "prefix": place.prefix.encode().hex()})
        )
    return Answer(told[0].status, "".join(one.text for one in told))


@ROW.attack("registry")
def registry(attacker: Attacker) -> Answer:
    told = attacker.ask("PATCH", "/config", json.encode({}), **{"Content-Type": "application/json"})
    mended = attacker.post("/registry:repair", {})
    return told._replace(is_reached=200 in {told.status, mended.status})


@ROW.attack("encodings")
def encodings(attacker: Attacker) -> Answer:
    name = attacker.place.keyspace
    names = (
        f"%{ord(name[0]):02X}{name[1:]}", f"{name}%00", f"{name}%2F", f"{name}/", f"./{name}", f"../keyspaces/{name}",
        f"{name}%20", name.upper(), f"{name}:get", f"{name}/history", f"{name}/usage", f"{name}/quota", f"{name};a",
    )  # fmt: skip
    told = [attacker.ask("GET", f"/keyspaces/{one}") for one in names]
    assert all(one.status < 500 for one in told), list(zip(names, told, strict=True))
    return Answer(told[0].status, "".join(one.text for one in told))
