"""The broker document's commands, run by bash with the real curl and jq against an embedded store, print what it prints.

Differences are those that real etcd has, too: listings are sorted here, the eighth command prints the whole path, and index
numbers are those of this store.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from keyplan.engine import open_engine
from tests.servers.gateways import GatewayServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed: apt-get install jq"),
]

MEMBER: Final = (
    '{"role":"master","state":"running","conn_url":"postgres://replicator:replicator@10.244.21.8:32768/postgres",'
    '"api_url":"http://127.0.0.1:8008/patroni","xlog_location":83886336}'
)
NODES: Final = ("f16bc34d-c3de-4843-9dc6-b183cbce2238", "c65d2e1a-eb6b-401e-ac9b-195f8f942d26")
CONTAINERS: Final = (
    "0.patroni.patroni1.patroni.bosh:cf-cb71d10a-c84c-455f-9dbf-ff9bd1e1b8db:5432",
    "1.patroni.patroni1.patroni.bosh:cf-d0cfa70a-12de-441f-94e7-65a64cb583c0:5432",
)
DATA: Final = {
    **{f"/service/f1/members/{node}": MEMBER for node in NODES},
    **{f"/postgresql-patroni/{container}": "10.244.21.8:32768" for container in CONTAINERS},
    "/routing/nextport": "33007",
    "/routing/allocation/f1": "33006",
    **{f"/serviceinstances/f1/nodes/{node}/backend": "10.244.21.8" for node in NODES},
}

COMMANDS: Final = (
    (
        'curl -s ${ETCD_CLUSTER}/v2/keys/ | jq -r ".node.nodes[].key"',
        "/postgresql-patroni\n/routing\n/service\n/serviceinstances\n",
    ),
    (
        'id=f1; curl -s ${ETCD_CLUSTER}/v2/keys/service/$id/members | jq -r ".node.nodes[].key"',
        (
            "/service/f1/members/c65d2e1a-eb6b-401e-ac9b-195f8f942d26\n"
            "/service/f1/members/f16bc34d-c3de-4843-9dc6-b183cbce2238\n"
        ),
    ),
    (
        (
            "id=f1; curl -s ${ETCD_CLUSTER}/v2/keys/service/$id/members/f16bc34d-c3de-4843-9dc6-b183cbce2238"
            " | jq -r .node.value | jq ."
        ),
        """{
  "role": "master",
  "state": "running",
  "conn_url": "postgres://replicator:replicator@10.244.21.8:32768/postgres",
  "api_url": "http://127.0.0.1:8008/patroni",
  "xlog_location": 83886336
}
""",
    ),
    (
        'curl -s ${ETCD_CLUSTER}/v2/keys/postgresql-patroni/ | jq -r ".node.nodes[].key"',
        (
            "/postgresql-patroni/0.patroni.patroni1.patroni.bosh:cf-cb71d10a-c84c-455f-9dbf-ff9bd1e1b8db:5432\n"
            "/postgresql-patroni/1.patroni.patroni1.patroni.bosh:cf-d0cfa70a-12de-441f-94e7-65a64cb583c0:5432\n"
        ),
    ),
    (
        (
            "curl -s ${ETCD_CLUSTER}/v2/keys/postgresql-patroni/"
            "0.patroni.patroni1.patroni.bosh:cf-cb71d10a-c84c-455f-9dbf-ff9bd1e1b8db:5432 | jq -r .node.value"
        ),
        "10.244.21.8:32768\n",
    ),
    (
        'curl -s $ETCD_CLUSTER/v2/keys/routing | jq -r ".node.nodes[].key"',
        "/routing/allocation\n/routing/nextport\n",
    ),
    (
        'curl -s $ETCD_CLUSTER/v2/keys/routing/allocation | jq -r ".node.nodes[]"',
        """{
  "key": "/routing/allocation/f1",
  "value": "33006",
  "modifiedIndex": N,
  "createdIndex": N
}
""",
    ),
    ('curl -s ${ETCD_CLUSTER}/v2/keys/serviceinstances/ | jq -r ".node.nodes[].key"', "/serviceinstances/f1\n"),
    (
        'curl -s ${ETCD_CLUSTER}/v2/keys/serviceinstances/f1/nodes/ | jq -r ".node.nodes[].key"',
        (
            "/serviceinstances/f1/nodes/c65d2e1a-eb6b-401e-ac9b-195f8f942d26\n"
            "/serviceinstances/f1/nodes/f16bc34d-c3de-4843-9dc6-b183cbce2238\n"
        ),
    ),
    (
        (
            "curl -s ${ETCD_CLUSTER}/v2/keys/serviceinstances/f1/nodes/f16bc34d-c3de-4843-9dc6-b183cbce2238"
            ' | jq -r ".node.nodes[]"'
        ),
        """{
  "key": "/serviceinstances/f1/nodes/f16bc34d-c3de-4843-9dc6-b183cbce2238/backend",
  "value": "10.244.21.8",
  "modifiedIndex": N,
  "createdIndex": N
}
""",
    ),
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("document")
    with open_engine(f"lmdb:{folder}") as engine, GatewayServer(engine) as server:
        for key, value in DATA.items():
            subprocess.run(
                ["curl", "-sf", f"{server.url}/v2/keys{key}", "-XPUT", "--data-urlencode", f"value={value}"],
                check=True,
                capture_output=True,
            )
        yield server.url


@pytest.mark.parametrize(("command", "printed"), COMMANDS)
def test_a_command_of_the_document_prints_what_the_document_prints(address: str, command: str, printed: str) -> None:
    found = subprocess.run(
        ["bash", "-c", f"ETCD_CLUSTER={address}; {command}"], capture_output=True, text=True, check=True
    )
    assert re.sub(r'(Index": )\d+', r"\1N", found.stdout) == printed


def test_a_script_that_reads_a_missing_key_gets_null(address: str) -> None:
    command = f"curl -s {address}/v2/keys/none | jq -r .node.value"
    assert subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout == "null\n"
