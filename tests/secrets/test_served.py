"""A server that has keys seals what its services keep: CloudChamber's password hashes, the broker's passwords."""

import json
from collections.abc import Mapping
from pathlib import Path

from keyplan import Secret
from keyplan.apps.cloudchamber import CloudChamber
from keyplan.apps.patroni import Broker, Member, MemberKey
from keyplan.apps.patroni.service import build
from keyplan.apps.runm import Runm
from keyplan.engine import KeyRange, MemoryEngine
from keyplan.layout import describe, layout_of_description, plain_value
from keyplan.maintenance import rotate_secrets, secret_counts
from keyplan.server import Application, Service, ServiceContext
from keyplan.store import Store
from tests.apps.cloudchamber.site import Site, site_of
from tests.secrets.test_sealed_store import keys


def test_password_hashes_of_cloudchamber_are_sealed_and_users_log_in(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/chamber.kv?durability=none"

    async def make_a_user(site: Site) -> None:
        admin = await site.logged_in()
        body = {"password": "swordfish", "enabled": True, "rights": {}}
        assert (await admin.post("/api/users/ada", json=body)).status_code == 200

    async def log_in_with(site: Site) -> int:
        return (await site.client().put("/api/users/ada?op=login", content="swordfish")).status_code

    with site_of(url, tmp_path, secrets=keys("k1")) as site:
        site.run(make_a_user)
        with site.store.engine.snapshot() as snapshot:
            users = [
                entry.value for entry in snapshot.scan(KeyRange(*CloudChamber.bound().tables["users"].keys.range(())))
            ]
        assert len(users) == 2
        assert all(b'"passwordHash":{"$sealed":"keyplan/1:k1:' in user for user in users)
        [counts] = secret_counts(site.store, CloudChamber.bound())
        assert (counts.records, counts.clear, counts.sealed) == (2, 0, {"k1": 2})
    with site_of(url, tmp_path, secrets=keys("k1")) as site:
        assert site.run(log_in_with) == 200
        keyed = Store(site.store.engine, secrets=keys("k2", "k1"))
        assert rotate_secrets(keyed, CloudChamber(keyed)).written == 2
    with site_of(url, tmp_path, secrets=keys("k2")) as site:
        assert site.run(log_in_with) == 200


def test_a_server_hands_its_keys_to_the_service_broker() -> None:
    seen: list[ServiceContext] = []

    def noted(context: ServiceContext) -> Service:
        seen.append(context)
        return build(context)

    with MemoryEngine() as engine:
        Application.build(engine, {"patroni-broker": noted}, secrets=keys("k1"))
        assert [context.secrets for context in seen] == [seen[0].secrets] != [None]


def test_no_table_of_a_shipped_application_has_secrets_that_cannot_be_sealed() -> None:
    layouts: Mapping[str, set[str]] = {
        layout.spec.name: {
            name for name, table in layout.bound().tables.items() if table.seal is not None and table.spec.is_sealed
        }
        for layout in (CloudChamber, Broker, Runm)
    }
    assert layouts == {
        "CloudChamber": {"users"},
        "Broker": {"instances", "bindings", "orders"},
        "Runm": {"bootstrap_token"},
    }
    for layout in (CloudChamber, Broker, Runm):
        for table in layout.bound().tables.values():
            if table.seal is not None and table.spec.is_sealed:
                table.seal.check()


def test_what_patroni_writes_itself_is_masked_and_never_sealed() -> None:
    url = "postgres://replicator:swordfish@10.0.0.1:5432/postgres"
    with MemoryEngine() as engine:
        store = Store(engine, secrets=keys("k1"))
        broker = Broker(store)
        broker.members.put(MemberKey("c1", "m1"), Member(role="replica", conn_url=Secret(url)), lease=store.lease(60))
        assert rotate_secrets(store, broker).records == 0
        assert [each.table for each in secret_counts(store, broker) if each.table == "members"] == []
        raw = engine.value(b"/service/c1/members/m1")
        assert raw is not None
        assert json.loads(raw)["conn_url"] == url
        member = broker.members.require(MemberKey("c1", "m1"))
        assert member.address == "10.0.0.1:5432"
        assert "swordfish" not in repr(member) + str(plain_value(member))
        described = layout_of_description(describe(Broker.spec))
        assert not described.tables["members"].is_sealed
        assert described.tables["members"].form.secrets == (("conn_url",),)
