"""Random sequences of requests, to a real etcd 3.4 with its v2 API and to the gateway: the same answers, index by index."""

import contextlib
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keyplan.engine import Commit, Delete, Engine, MemoryEngine, Put
from tests.server.etcd_v2.recorded_requests import Answer, normal
from tests.servers.etcd import EtcdServer
from tests.servers.gateways import GatewayServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Step(NamedTuple):
    """A request below the example's own directory. `relative` parameters are numbers counted from the index at its start."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    form: tuple[tuple[str, str], ...] = ()
    relative: tuple[tuple[str, int], ...] = ()


class Foreign(NamedTuple):
    """A change that somebody makes past the API: of a key right in the example's directory. No value: it is deleted."""

    path: str
    value: str | None


PATHS = st.sampled_from(["", "/a", "/b", "/a/b", "/a/b/c", "/a/_h", "/_h", "/_h/x", "/b/", "/a b", "/a//b", "/é"])
BOOLEANS = st.sampled_from(["true", "false", "1", "0", "T", "", "yes"])
PARAMETERS = st.one_of(
    st.tuples(st.just("value"), st.sampled_from(["1", "2", "", "<&>", 'é\n\t"\\'])),
    st.tuples(st.just("prevValue"), st.sampled_from(["1", "2", ""])),
    st.tuples(st.just("prevIndex"), st.sampled_from(["0", "1", "x", "-1", "1.5", ""])),
    st.tuples(st.just("ttl"), st.sampled_from(["1000", "", "x", "-1", "99999999999999999999"])),
    st.tuples(st.sampled_from(["dir", "recursive", "prevExist", "refresh", "noValueOnSuccess", "sorted"]), BOOLEANS),
    st.tuples(st.just("quorum"), st.sampled_from(["true", "x"])),
    st.tuples(st.just("stream"), BOOLEANS),
)
LIKELY = st.sampled_from(
    [
        (),
        (("value", "1"),),
        (("value", "2"), ("ttl", "1000")),
        (("dir", "true"),),
        (("dir", "true"), ("ttl", "1000"), ("prevExist", "true")),
        (("value", "1"), ("prevExist", "false")),
        (("value", "2"), ("prevExist", "true")),
        (("value", "2"), ("prevValue", "1")),
        (("refresh", "true"), ("ttl", "900"), ("prevExist", "true")),
        (("refresh", "true"), ("ttl", "900")),
        (("recursive", "true"),),
        (("prevValue", "1"),),
    ]
)
STEPS = st.builds(
    Step,
    st.sampled_from(["GET", "GET", "PUT", "PUT", "PUT", "POST", "DELETE", "HEAD"]),
    PATHS,
    st.one_of(LIKELY, st.lists(PARAMETERS, max_size=2).map(tuple)),
    st.one_of(LIKELY, LIKELY, st.lists(PARAMETERS, max_size=3).map(tuple)),
    st.one_of(st.just(()), st.just(()), st.tuples(st.tuples(st.just("prevIndex"), st.integers(0, 6)))),
)

FOREIGN = st.builds(Foreign, st.sampled_from(["/a", "/b", "/o"]), st.sampled_from(["1", "2", "theirs", None]))
# Why: from its history, etcd tells of hidden keys, too.
SEEN = STEPS.filter(lambda step: "/_" not in step.path)

EXAMPLE_NUMBERS = count()


class Pair(NamedTuple):
    """The two servers, and how to bring their counters to one number."""

    real: httpx.Client
    ours: httpx.Client

    def change(self, engine: Engine, path: str, value: str | None) -> None:
        """Change a key past the gateway, and beside it by the requests that tell what is told of such a change."""
        found = self.real.get(f"/v2/keys{path}")
        if found.status_code == 200 and found.json()["node"].get("dir"):
            return  # what is beside a directory is not seen, and no key of etcd's is there
        if value is not None:
            exists = "true" if found.status_code == 200 else "false"
            assert self.real.put(f"/v2/keys{path}", data={"value": value, "prevExist": exists}).is_success
            engine.commit(Commit((), (Put(path.encode(), value.encode()),)))
        elif found.status_code == 200:
            assert self.real.delete(f"/v2/keys{path}").is_success
            engine.commit(Commit((), (Delete(path.encode()),)))

    def align(self) -> int:
        """Write fillers until both are at one index. Return it."""
        while True:
            indexes = [int(each.get("/v2/keys/").headers["x-etcd-index"]) for each in self]
            if indexes[0] == indexes[1]:
                return indexes[0]
            behind = self[indexes.index(min(indexes))]
            behind.put("/v2/keys/filler", data={"value": "x"})


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with MemoryEngine() as opened:
        yield opened


@pytest.fixture(scope="module")
def pair(engine: Engine) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(EtcdServer(has_v2=True))
        gateway = stack.enter_context(GatewayServer(engine))
        clients = [stack.enter_context(httpx.Client(base_url=url)) for url in (etcd.client_url, gateway.url)]
        yield Pair(*clients)


def asked(client: httpx.Client, step: Step, folder: str, index: int) -> dict[str, Any]:
    query = urlencode([*step.query, *((name, str(index + number)) for name, number in step.relative)])
    form = dict(step.form) if step.method in {"PUT", "POST"} else None
    answer = client.request(step.method, f"/v2/keys/{folder}{step.path}?{query}", data=form)
    return normal(Answer(answer.status_code, dict(answer.headers), answer.text.strip()))


REFRESH = (("refresh", "true"), ("ttl", "900"))


@pytest.mark.usefixtures("etcd_program")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(STEPS, min_size=1, max_size=12))
def test_any_sequence_of_requests_is_answered_as_by_etcd(pair: Pair, steps: list[Step]) -> None:
    folder = f"x{next(EXAMPLE_NUMBERS)}"
    index = pair.align()
    for step in steps:
        assert asked(pair.ours, step, folder, index) == asked(pair.real, step, folder, index), step


@pytest.mark.usefixtures("etcd_program")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(st.one_of(SEEN, FOREIGN), min_size=1, max_size=12))
@example(steps=[Step("POST", "", (), REFRESH), Step("PUT", "/new", (), (*REFRESH, ("prevExist", "false")))])
@example(steps=[Step("PUT", "/new", (), (("value", "1"),)), Step("PUT", "/new", (), REFRESH)])
def test_it_is_so_beside_somebody_who_writes_past_the_api(
    pair: Pair, engine: Engine, steps: list[Step | Foreign]
) -> None:
    """And all of them are told the same: each event since the start, whoever's it was."""
    folder = f"x{next(EXAMPLE_NUMBERS)}"
    for client in pair:
        client.put(f"/v2/keys/{folder}", data={"dir": "true"})
    index = pair.align()
    for step in steps:
        if isinstance(step, Foreign):
            pair.change(engine, f"/{folder}{step.path}", step.value)
        else:
            assert asked(pair.ours, step, folder, index) == asked(pair.real, step, folder, index), step
    for client in pair:
        client.put(f"/v2/keys/{folder}/last", data={"value": "1"})
    last = int(pair.real.get("/v2/keys/").headers["x-etcd-index"])
    for number in range(index + 1, last + 1):
        query = f"wait=true&recursive=true&waitIndex={number}"
        real, ours = (_untimed(client.get(f"/v2/keys/{folder}?{query}").json()) for client in pair)
        assert ours == real, number


def _untimed(event: Any) -> Any:
    if isinstance(event, dict):
        return {name: _untimed(part) for name, part in event.items() if name not in {"expiration", "ttl"}}
    return event


SCENARIO: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("PUT", "/deep/er/file", {"value": "1"}),
    ("PUT", "/deep", {"dir": "true", "prevExist": "true", "ttl": "500"}),
    ("GET", "/deep", {}),
    ("PUT", "/deep/er/file", {"dir": "true"}),
    ("GET", "/deep?recursive=true&sorted=true", {}),
    ("DELETE", "/deep/er/file?dir=true", {}),
    ("DELETE", "/deep/er", {}),
    ("DELETE", "/deep?recursive=true", {}),
    ("POST", "", {"value": "in the folder"}),
    ("POST", "/queue/", {"value": "1"}),
    ("POST", "/queue", {"value": "2", "ttl": "100"}),
    ("GET", "/queue?sorted=true&recursive=true", {}),
    ("DELETE", "/queue?prevIndex=1", {}),
    ("DELETE", "?recursive=true", {}),
    ("GET", "", {}),
)


@pytest.mark.usefixtures("etcd_program")
def test_a_tree_that_grows_and_goes_is_answered_as_by_etcd(pair: Pair) -> None:
    pair.align()
    for method, path, form in SCENARIO:
        answers = []
        for client in pair:
            answer = client.request(method, f"/v2/keys/scenario{path}", data=form or None)
            answers.append(normal(Answer(answer.status_code, dict(answer.headers), answer.text.strip())))
        assert answers[1] == answers[0], (method, path, form)


FORM = "application/x-www-form-urlencoded"
ODD: tuple[tuple[str, str, str, str | None], ...] = (
    *((method, "/v2/keys/odd?value=1", "", None) for method in ("PUT", "OPTIONS", "PATCH", "TRACE")),
    *(("OPTIONS", path, "", None) for path in ("/", "/v2/keys", "/v2/machines", "/v2/stats/self", "/version", "/none")),
    *((method, "/v2/machines", "", None) for method in ("POST", "PUT", "DELETE", "PATCH")),
    *((method, "/v2/stats/store", "", None) for method in ("HEAD", "POST")),
    *(("GET", path, "", None) for path in ("/", "/none", "/none/", "/v2", "/v2/", "/v2/keysx", "/v2/none", "/v2/auth")),
    *(("GET", path, "", None) for path in ("/v2/machines/", "/v2/members/none", "/v2/members/leader/", "/v2/stats")),
    *((method, path, "", None) for method in ("GET", "HEAD", "PATCH") for path in ("//v2/keys/odd", "/v2/keys//odd")),
    *(("GET", f"/v2/{path}?q=<&>", "", None) for path in ("/keys/odd", "keys/../none", "keys/odd/.", "keys/odd//")),
    *(("GET", f"/v2/keys/{path}", "", None) for path in ("%", "%4", "%zz", "%2e%2e/none", "odd%2Fx", "%00", "%C3%A9")),
    *((method, "/v2/keys/line%0Aend?value=1", "", None) for method in ("PUT", "GET", "DELETE")),
    *(
        ("PUT", "/v2/keys/odd", "value=form", content_type)
        for content_type in (
            *(
                FORM,
                FORM.upper(),
                f"{FORM}; param=yes",
                f"{FORM};",
                f"{FORM}; param",
                f"{FORM}; a=b; A=c",
                f'{FORM}; a="b;c"',
            ),
            *(
                "application/json",
                "multipart/form-data; boundary=x",
                "text",
                "text/",
                "/",
                "///",
                "a b/c",
                "a/b c",
                "@",
                None,
            ),
        )
    ),
    *(
        ("PUT", "/v2/keys/odd?ttl=7&prevExist=true", form, FORM)
        for form in (
            "ttl=x&value=1",
            "value=1&value=2",
            "prevExist=&value=1",
            "=&&value=a%2Bb+c",
            "value=%",
            "value=a;b",
        )
    ),
)
"""Method, target, body and content type of requests that nobody means well with."""


def raw_answer(url: str, method: str, target: str, body: str, content_type: str | None) -> dict[str, Any]:
    """Ask without a client that mends the target; return what must be equal, what a page of another site may see included."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
    headers = {"Content-Length": str(len(body)), **({"Content-Type": content_type} if content_type is not None else {})}
    connection.request(method, target, body.encode() or None, headers)
    answer = connection.getresponse()
    kept = {name.lower(): value for name, value in answer.getheaders()}
    said = normal(Answer(answer.status, kept, answer.read().decode().strip()))
    connection.close()
    said["headers"].pop("x-etcd-index", None)
    # Why not what etcd tells browsers: it lets every site's pages look, and a gateway those that it is told of.
    seen = {name: value for name, value in kept.items() if name == "x-content-type-options"}
    return said | {"seen": seen}


@pytest.mark.usefixtures("etcd_program")
def test_odd_requests_are_answered_as_by_etcd(pair: Pair) -> None:
    pair.align()
    differing = {}
    for request in ODD:
        real, ours = (raw_answer(str(client.base_url).rstrip("/"), *request) for client in pair)
        if real != ours:
            differing[request] = (real, ours)
    assert differing == {}


@pytest.mark.usefixtures("etcd_program")
@pytest.mark.parametrize(
    ("method", "query"),
    [
        ("PUT", ""),
        ("PUT", "value=1&prevValue=1"),
        ("PUT", "prevExist=true"),
        ("PUT", "prevExist=false"),
        ("DELETE", ""),
        ("DELETE", "dir=true"),
        ("DELETE", "recursive=true"),
        ("POST", "prevIndex=x"),
        ("GET", "recursive=x"),
    ],
)
def test_the_root_is_answered_for_as_by_etcd(pair: Pair, method: str, query: str) -> None:
    pair.align()
    answers = []
    for client in pair:
        answer = client.request(method, f"/v2/keys/?{query}")
        answers.append(normal(Answer(answer.status_code, dict(answer.headers), answer.text.strip())))
    assert answers[1] == answers[0]


def test_the_root_cannot_be_compared_and_deleted_either() -> None:
    # Why not beside etcd: of all writes on the root, etcd answers this one with 102 and no cause.
    with MemoryEngine() as engine, GatewayServer(engine) as server:
        answer = httpx.delete(f"{server.url}/v2/keys/?prevValue=1")
    assert (answer.status_code, answer.json()["errorCode"], answer.json()["cause"]) == (400, 107, "/")
