"""A server that has keys seals what its services keep: CloudChamber's password hashes, the broker's passwords."""

from collections.abc import Mapping
from pathlib import Path

from keyplan.apps.cloudchamber import CloudChamber
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.service import build
from keyplan.apps.runm import Runm
from keyplan.engine import KeyRange, MemoryEngine
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
        layout.spec.name: {name for name, table in layout.bound().tables.items() if table.seal is not None}
        for layout in (CloudChamber, Broker, Runm)
    }
    assert layouts == {
        "CloudChamber": {"users"},
        "Broker": {"instances", "bindings", "orders"},
        "Runm": {"bootstrap_token"},
    }
    for layout in (CloudChamber, Broker, Runm):
        for table in layout.bound().tables.values():
            if table.seal is not None:
                table.seal.check()
