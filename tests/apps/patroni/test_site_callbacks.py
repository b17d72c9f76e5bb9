"""Callbacks of a site: data about clusters are kept and read back, clones are made, what was lost is made again."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.site_callbacks import read_callbacks
from keyplan.errors import InvalidInputError
from keyplan.store import open_store
from tests.apps.patroni.conftest import Deployment, broker_server
from tests.apps.patroni.osb_platform import PAIR, SERVICE, WAIT, Platform
from tests.apps.patroni.paper_cell import PaperCells

pytestmark = pytest.mark.slow

SITE = """
import json, pathlib, sys
folder, verb, given = pathlib.Path(sys.argv[1]), sys.argv[2], sys.stdin.read()
kept = {path.stem: json.loads(path.read_text()) for path in folder.glob("kept/*.json")}
if verb == "backup":
    (folder / "kept").mkdir(exist_ok=True)
    (folder / "kept" / (json.loads(given)["instance_id"] + ".json")).write_text(given)
elif verb == "restore" and given in kept:
    print(json.dumps({**kept[given], **({"allocated_port": 1} if given == "lied-about" else {})}))
elif verb == "find":
    asked = json.loads(given)
    print(*(json.dumps(data) for data in kept.values() if asked.items() <= data.items()))
elif verb == "copy":
    with (folder / "copies").open("a") as copies:
        copies.write(given + "\\n")
    sys.exit(json.loads(given)["to_instance_id"] == "uncopied")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site's own programs, and of what they keep."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "site.py").write_text(SITE)
    names = {
        "clusterdata_backup": "backup",
        "clusterdata_restore": "restore",
        "clusterdata_find_by_name": "find",
        "backups_copy": "copy",
    }
    callbacks: dict[str, Any] = {
        name: {"cmd": sys.executable, "args": [str(folder / "site.py"), str(folder), verb]}
        for name, verb in names.items()
    }
    (folder / "callbacks.json").write_text(json.dumps({**callbacks, "base_uri": "file:///backups/"}))
    return folder


@pytest.fixture(scope="module")
def kept(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    url = f"lmdb:{tmp_path_factory.mktemp('backups')}/store.kv"
    with (
        open_store(url) as store,
        broker_server(url, f"callbacks={site / 'callbacks.json'}") as server,
        PaperCells(store, "n1", "n2"),
    ):
        yield Deployment(server, store, Broker(store), Platform(server.url))


def provision(kept: Deployment, instance: str, name: str, **parameters: str) -> str:
    """Ask for an instance with a name, and return how that ended."""
    body = {"service_id": SERVICE, "plan_id": PAIR, "organization_guid": "org", "space_guid": "space"}
    named = {
        "context": {"instance_name": name},
        "parameters": {"clone-from": parameters["clone_from"]} if parameters else {},
    }
    answer = kept.platform.http.put(f"/v2/service_instances/{instance}", params=WAIT, json={**body, **named})
    if answer.status_code != 202:
        return f"{answer.status_code} {answer.json()['description']}"
    ended = kept.platform.ended(instance)
    return f"{ended['state']} {ended['description']}"


def test_the_data_of_an_instance_are_kept_and_shown_without_passwords(kept: Deployment, site: Path) -> None:
    assert provision(kept, "first", "orders") == "succeeded done"
    data = json.loads((site / "kept" / "first.json").read_text())
    state = kept.broker.instances.require("first")
    assert (data["service_id"], data["plan_id"], data["space_guid"]) == (SERVICE, PAIR, "space")
    assert (data["service_instance_name"], data["allocated_port"]) == ("orders", state.allocated_port)
    assert data["superuser_credentials"] == {
        "username": "postgres",
        "password": state.superuser_credentials.password.reveal(),
    }
    shown = kept.platform.http.get("/admin/spaces/space/clusterdata_backup_by_name/orders")
    assert (shown.status_code, shown.json()["instance_id"]) == (200, "first")
    assert state.superuser_credentials.password.reveal() not in shown.text
    assert kept.platform.http.get("/admin/spaces/other/clusterdata_backup_by_name/orders").status_code == 404


def test_a_clone_is_made_from_a_copy_and_has_the_users_of_its_source(kept: Deployment, site: Path) -> None:
    assert provision(kept, "source", "shop") == "succeeded done"
    assert provision(kept, "clone", "shop-2", clone_from="shop") == "succeeded done"
    copied = json.loads((site / "copies").read_text().splitlines()[-1])
    assert copied == {
        "from_instance_id": "source",
        "to_instance_id": "clone",
        "from_uri": "file:///backups/source",
        "to_uri": "file:///backups/clone",
    }
    source, clone = (kept.broker.instances.require(name) for name in ("source", "clone"))
    assert clone.superuser_credentials.password == source.superuser_credentials.password
    assert clone.allocated_port != source.allocated_port
    restores = {order.instance: order.restore for _, order in kept.broker.orders.list()}
    assert (restores["clone"], restores["source"]) == ("file:///backups/clone", "")


def test_what_cannot_be_cloned_is_refused_or_fails(kept: Deployment) -> None:
    assert provision(kept, "wrong", "x", clone_from="nobody").startswith("400 clone-from: there is no instance")
    assert not kept.broker.instances.exists("wrong")
    assert provision(kept, "whole", "whole") == "succeeded done"
    failed = "failed step 1 of 6: copy the backups that it is made from: backups_copy ended with 1"
    assert provision(kept, "uncopied", "y", clone_from="whole") == failed
    assert kept.platform.update("whole", clone_from="whole").status_code == 400


def test_an_instance_whose_data_are_not_given_back_the_same_is_not_made(kept: Deployment) -> None:
    said = provision(kept, "lied-about", "z")
    assert said == (
        "failed step 5 of 5: keep the data about it: "
        "clusterdata_restore does not give back what clusterdata_backup was given"
    )


def test_a_lost_instance_is_made_again_with_its_users_and_its_port(kept: Deployment) -> None:
    platform, broker = kept.platform, kept.broker
    assert provision(kept, "lost", "ledger") == "succeeded done"
    before = broker.instances.require("lost")
    recreate = "/admin/service_instances/lost/recreate"
    assert platform.http.post(recreate).status_code == 409
    assert platform.deprovision("lost").status_code == 202
    platform.ended("lost")
    assert before.allocated_port is not None
    broker.allocations.put("thief", before.allocated_port)
    assert platform.http.post(recreate).status_code == 409
    broker.allocations.delete("thief")
    assert platform.http.post(recreate).status_code == 202
    assert platform.ended("lost") == {"state": "succeeded", "description": "done"}
    after = broker.instances.require("lost")
    assert after.allocated_port == before.allocated_port
    assert after.superuser_credentials.password == before.superuser_credentials.password
    assert after.restore == "file:///backups/lost"
    assert platform.http.post("/admin/service_instances/unheard-of/recreate").status_code == 404


@pytest.mark.parametrize("text", ["", "{}", '{"clusterdata_backup": {"cmd": "x"}}', '{"colour": "blue"}'])
def test_a_file_that_names_no_callbacks_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "callbacks.json"
    file.write_text(text)
    with pytest.raises(InvalidInputError):
        read_callbacks(file)
