"""Definitions over HTTP by force: any sequence of writes under either layout, beside a dictionary."""

import os
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apps.cloudchamber.definitions import (
    CAPACITY,
    DETAILS,
    NEW_ONE,
    SIDES,
    WHATEVER,
    assert_sound,
    ports,
    raw,
    site_with,
)
from tests.apps.cloudchamber.site import Site


class Model:
    """An inventory as a dictionary, with the rules written anew. A rack's parts are by kind and number."""

    def __init__(self, *, folds: bool) -> None:
        self.folds = folds
        self.racks: dict[str, dict[tuple[str, int], Any]] = {}
        self.actuals: dict[str, dict[tuple[str, int], Any]] = {}
        """By the same keys: what a simulator says of parts."""

    def key(self, rack: str) -> str:
        return rack.lower() if self.folds or (rack not in self.racks and rack.lower() in self.racks) else rack

    def wrong(self, rack: str, kind: str, number: int, body: Any) -> int:
        """The status of a write that breaks a rule; 0 for one that breaks none."""
        parts = self.racks.get(self.key(rack))
        if kind == "rack":
            return 0
        if parts is None:
            return 404
        blades = sum(one == "blades" for one, _ in parts)
        if kind == "blades":
            devices = [device for (one, _), device in parts.items() if one in {"pdus", "tors"}]
            is_new = (kind, number) not in parts
            return 409 if is_new and any(len(device["ports"]) <= blades for device in devices) else 0
        others = sum(one == kind and other != number for one, other in parts)
        return 409 if others == 2 or len(body["ports"]) < blades else 0


def body_of(chance: random.Random, kind: str) -> Any:
    details = {"details": chance.choice([{}, DETAILS])}
    if kind == "rack":
        return details
    if kind == "blades":
        return details | {"capacity": CAPACITY | {"cores": str(chance.randint(1, 9))}, "bootInfo": {}}
    return details | ports(chance.randint(1, 4))


async def say(admin: httpx.AsyncClient, model: Model, chance: random.Random) -> None:
    """A simulator says something of a part, or takes it back."""
    rack, kind = chance.choice(["Ada", "ada", "bob"]), chance.choice(["blades", "pdus", "tors"])
    part, path = (kind, number := chance.randrange(3)), f"/api/racks/{rack}/{kind}/{number}/actual"
    known = model.actuals.setdefault(model.key(rack), {})
    if chance.random() < 0.2:
        answer, expected = await admin.delete(path), 200 if part in known else 404
        known.pop(part, None)
    else:
        body = {"at": str(chance.randint(1, 9)), "smState": "working"}
        answer = await admin.put(path, json=body)
        expected = 200 if part in model.racks.get(model.key(rack), {}) else 404
        if expected == 200:
            known[part] = body
    assert answer.status_code == expected, (path, answer.text)


@pytest.mark.parametrize("side", SIDES)
def test_any_sequence_of_writes_leaves_what_a_dictionary_would_hold(side: str, tmp_path: Path) -> None:
    """Each answer is the model's, and at the end readers and `check` agree with it."""
    chance = random.Random(os.environ.get("KEYPLAN_SEED", "7"))
    model = Model(folds=side == "go")
    etags: dict[str, list[str]] = {}
    statuses: set[int] = set()

    async def step(admin: httpx.AsyncClient) -> None:
        rack, kind = chance.choice(["Ada", "ada", "bob"]), chance.choice(["rack", "blades", "blades", "pdus", "tors"])
        number = 0 if kind == "rack" else chance.randrange(4 if kind == "blades" else 3)
        path = f"/api/racks/{rack}{'' if kind == 'rack' else f'/{kind}/{number}'}/definition"
        parts, part = model.racks.get(model.key(rack), {}), (kind, number)
        known = etags.setdefault(f"{model.key(rack)} {part}", [])
        is_there = model.key(rack) in model.racks if kind == "rack" else part in parts
        headers: dict[str, str] = chance.choice(
            [{}, NEW_ONE, NEW_ONE, WHATEVER, *({"If-Match": tag} for tag in known[-2:])]
        )
        tag = headers.get("If-Match")
        is_met = bool(headers) and is_there is (headers is not NEW_ONE) and tag in {None, "*", *known[-1:]}
        if chance.random() < 0.25:
            cascade = chance.random() < 0.3
            answer = await admin.delete(path + ("?cascade" if cascade else ""), headers=headers)
            is_full = kind == "rack" and len(parts) > 1 and not cascade
            refusals = {428: "If-Match" not in headers, 404: not is_there, 412: not is_met, 409: is_full}
            expected = next((status for status, is_so in refusals.items() if is_so), 200)
            if expected == 200 and kind == "rack":
                key = model.key(rack)
                del model.racks[key]
                model.actuals.pop(key, None)
            elif expected == 200:
                del parts[part]
                model.actuals.get(model.key(rack), {}).pop(part, None)
        else:
            body = body_of(chance, kind)
            answer = await admin.put(path, json=body, headers=headers)
            expected = 428 if not headers else 412 if not is_met else model.wrong(rack, kind, number, body)
            expected = expected or (200 if is_there else 201)
            if expected < 300:
                known.append(answer.headers["etag"])
                parts = model.racks.setdefault(model.key(rack), {})
                parts[part] = body
        assert answer.status_code == expected, (path, headers, answer.text)
        statuses.add(expected)
        if expected == 412 and is_there:
            assert answer.headers["etag"] == known[-1]

    async def act(site: Site) -> None:
        admin = await site.logged_in()
        for _ in range(250):
            await step(admin)
            if chance.random() < 0.5:
                await say(admin, model, chance)
        shown = (await admin.get("/api/racks")).json().get("racks", {})
        assert {rack.lower() for rack in shown} == {rack.lower() for rack in model.racks}
        for rack, parts in model.racks.items():
            found = (await admin.get(f"/api/racks/{rack}")).json()
            there = {("rack", 0): {"details": found.get("details", {})}}
            for kind, field in (("blades", "fullBlades"), ("pdus", "pdus"), ("tors", "tors")):
                there |= {(kind, int(number)): one for number, one in found.get(field, {}).items()}
            observed = {part: one.pop("observed") for part, one in there.items() if "observed" in one}
            assert observed == model.actuals.get(rack, {})
            assert there == {("rack", 0): {"details": {}}} | parts
        stored = sum(key.endswith(b"/actual") for key in raw(site.store))
        assert stored == sum(map(len, model.actuals.values())), "none is left alone"
        assert stored > 0
        assert {200, 201, 404, 409, 412, 428} <= statuses, "a run that is refused everything shows nothing"

    with site_with(side, tmp_path) as site:
        site.run(act)
        assert_sound(site.store)
