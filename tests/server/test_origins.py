"""Pages of other sites: a browser lets them read what is served here only where the server was told of their origin."""

from collections.abc import Iterator

import httpx
import pytest

from keyplan.errors import InvalidInputError
from keyplan.server import AllowedOrigins
from tests.servers.keyplan_server import KeyplanServer

TOOLS = "https://tools.example"
OTHERS = [
    "https://evil.example",
    "https://tools.example.evil.example",
    "http://tools.example",
    "https://TOOLS.example",
    "null",
]
PATHS = ["/v2/keys/", "/version", "/v2/machines", "/v2/stats/self", "/health", "/keyspaces", "/nothing", "/v2/../x"]


@pytest.fixture(scope="module")
def server() -> Iterator[KeyplanServer]:
    with KeyplanServer("memory:", "--app", "etcd-v2", "--app", "etcd-v3", "--allow-origin", TOOLS) as started:
        yield started


@pytest.fixture
def client(server: KeyplanServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as opened:
        yield opened


def told(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_no_answer_names_an_origin_that_the_server_was_not_told_of(client: httpx.Client, path: str) -> None:
    assert told(client.get(path)) == {}
    for origin in OTHERS:
        headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Access-Control-Request-Method": "PUT"}
        assert told(client.get(path, headers=headers)) == {}
        assert told(client.options(path, headers=headers)) == {}


@pytest.mark.slow
def test_pages_of_an_allowed_origin_ask_as_the_servers_own_do(client: httpx.Client) -> None:
    page = {"Origin": TOOLS, "Sec-Fetch-Site": "cross-site"}
    asked = client.options("/v2/keys/a", headers={**page, "Access-Control-Request-Method": "PUT"})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, TOOLS)
    assert "PUT" in asked.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in asked.headers
    written = client.put("/v2/keys/a?value=1", headers=page)
    assert (written.status_code, told(written)) == (201, {"access-control-allow-origin": TOOLS})
    assert written.headers["vary"] == "Origin"
    assert client.get("/keyspaces", headers=page).headers["access-control-allow-origin"] == TOOLS
    refused = client.put("/v2/keys/a?value=1", headers={**page, "Origin": OTHERS[0]})
    assert refused.status_code in {401, 403}


@pytest.mark.parametrize(
    "text", ["*", "null", "tools.example", "https://tools.example/", "https://*.example", "ftp://a", ""]
)
def test_an_origin_is_a_scheme_and_a_host_as_browsers_write_them(text: str) -> None:
    with pytest.raises(InvalidInputError, match="no origin"):
        AllowedOrigins.of_texts([text])
