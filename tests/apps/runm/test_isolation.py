"""`--isolate`: each session in its own partition and project, with tokens, with an access file, and with neither."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest

from keyplan.apps.runm.deployment import Deployment, Rulings
from keyplan.apps.runm.process import ServeChoices, run_server
from keyplan.apps.runm.server import Listening, serving
from keyplan.apps.runm.settings import ServeSettings
from keyplan.apps.runm.start import ensure_started
from keyplan.errors import InvalidInputError
from keyplan.server import Role, Token
from keyplan.store import Store
from tests.apps.runm.client import EAST, I1, I2, WEST, Client, refused
from tests.apps.runm.conftest import served
from tests.apps.runm.principals import guarded

W: Final = "us-west.example.com"
E: Final = "us-east.example.com"
DEFINITION: Final = {"schema": json.dumps({"type": "object"})}
ANN: Final = {"user": "ann", "project": "p1", "partition": W}
ROOT: Final = {"user": "root", "project": "p1", "partition": W}


def _image(partition: str, project: str, uuid: str) -> dict[str, Any]:
    return {"partition": partition, "object_type": "runm.image", "project": project, "uuid": uuid, "name": "i"}


def test_an_isolated_session_reaches_its_own_place_alone(lmdb_store: Store) -> None:
    with served(lmdb_store) as before:
        before.with_partitions()
    with served(lmdb_store, Rulings(is_isolated=True)) as west:
        session = {"user": "u", "project": "p1", "partition": WEST}
        assert [one.name for one in west.client.partition_find(session)] == [W]
        assert [one.name for one in west.api.partition_list(session)] == [W]
        with refused("NOT_FOUND"):
            west.client.partition_get_by_uuid(session, uuid=EAST)
        with refused("FAILED_PRECONDITION", f"Partition {EAST} not found"):
            west.client.provider_definition_set(session, partition_uuid=EAST, object_definition=DEFINITION)
        with refused("FAILED_PRECONDITION", f"Partition {EAST} not found"):
            west.client.provider_definition_get_by_partition(session, partition_uuid=EAST)
        with refused("PERMISSION_DENIED"):
            west.client.provider_definition_set(session, object_definition=DEFINITION)
        with refused("PERMISSION_DENIED"):
            west.client.partition_create(partition={"name": "third"})
        with refused("PERMISSION_DENIED"):
            west.api.partition_create(payload=b"name: third")
        west.client.provider_definition_set(session, partition_uuid=WEST, object_definition=DEFINITION)


def test_an_isolated_deployment_takes_its_first_partition_and_an_administrators(lmdb_store: Store) -> None:
    deployment = Deployment(lmdb_store, rulings=Rulings(is_isolated=True))
    ensure_started(deployment)
    texts = {Role.CLIENT: "c" * 32, Role.ADMIN: "a" * 32}
    tokens = [Token.of_text(role, str(role), text) for role, text in texts.items()]
    with serving(deployment, Listening(("127.0.0.1:0",)), tokens) as running:
        client, admin = (Client(running.addresses[0], token=text) for text in texts.values())
        with closing(client), closing(admin):
            client.partition_create(partition={"uuid": WEST, "name": W})
            with refused("PERMISSION_DENIED", "further partitions are made by an administrator."):
                client.partition_create(partition={"uuid": EAST, "name": E})
            admin.partition_create(partition={"uuid": EAST, "name": E})
            admin.provider_definition_set(ANN, object_definition=DEFINITION)
            assert len(admin.partition_find(ANN)) == 2
            assert len(client.partition_find(ANN)) == 1


def test_an_isolated_session_of_a_principal_is_kept_to_one_project(lmdb_store: Store, tmp_path: Path) -> None:
    with guarded(lmdb_store, tmp_path, Rulings(is_isolated=True)) as running:
        tenants = running.by("tenants")
        session = {"project": "p1"}
        tenants.object_create(session, object=_image(WEST, "p1", I1))
        with refused("PERMISSION_DENIED"):
            tenants.object_create(session, object=_image(WEST, "p2", I2))
        running.by("root").object_create(ROOT, object=_image(EAST, "p2", I2))


def test_an_access_file_is_the_only_one_that_says_who_may_ask(tmp_path: Path) -> None:
    settings = ServeSettings.of({"listen": "127.0.0.1:0"}, {}, store=f"lmdb:{tmp_path / 'store'}")
    choices = ServeChoices(access=tmp_path / "access.toml", is_open_to_anyone=True)
    with pytest.raises(InvalidInputError, match="the access file alone says who may ask"):
        run_server(settings, choices, Event(), announce=print)
    with pytest.raises(InvalidInputError, match="there is no such file"):
        run_server(settings, replace(choices, is_open_to_anyone=False), Event(), announce=print)
    assert not (tmp_path / "store").exists()
