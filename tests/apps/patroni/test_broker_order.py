"""Which of several faults the broker answers a request with: the method, the log-in, the version, the path, words, the body."""

import asyncio
from typing import Any, Final

import httpx

from keyplan.apps.patroni.service import build
from keyplan.server import Access, Application, Role, Token
from keyplan.store import open_store
from tests.apps.patroni.osb_platform import ADMIN_TOKEN, SERVICE, SOLO

ONE: Final = "/v2/service_instances/i"
HIDDEN: Final = "/v2/service_instances/_i"
BOUND: Final = f"{ONE}/service_bindings/_b"
VERSION: Final = {"X-Broker-API-Version": "2.17"}
OTHER_VERSION: Final = {"X-Broker-API-Version": "3.0"}
JSON: Final = {"Content-Type": "application/json"}
NO_PLAN: Final = b'{"service_id": "s", "plan_id": "p", "parameters": {"x": 1}, "maintenance_info": {"version": "1"}}'
REMOVAL: Final = f"?service_id={SERVICE}&plan_id={SOLO}"

LOG_IN: Final = "log in with the token of an administrator as the password"
ID: Final = "the instance id has 1 to 255 bytes"
WANTED: Final = "the query parameters service_id and plan_id are required"

CASES: list[tuple[str, str, str, dict[str, str], bytes, int, str]] = [
    ("nobody", "POST", HIDDEN, OTHER_VERSION, b"{", 405, "there is no such method here"),
    ("nobody", "PUT", HIDDEN, OTHER_VERSION, b"{", 401, LOG_IN),
    ("nobody", "GET", "/admin/cells/_c/demote", {}, b"", 405, "there is no such method here"),
    ("admin", "PUT", HIDDEN, {}, b"{", 400, "the header X-Broker-API-Version is required"),
    ("admin", "PUT", HIDDEN, OTHER_VERSION, b"{", 412, "this broker speaks version 2"),
    ("admin", "PUT", f"{HIDDEN}?accepts_incomplete=x", VERSION, b"{", 400, ID),
    ("admin", "PUT", f"{BOUND}?accepts_incomplete=x", VERSION, b"{", 400, "the binding id has 1 to 255 bytes"),
    ("admin", "PUT", f"{ONE}?accepts_incomplete=x", VERSION, b"{", 400, "accepts_incomplete is true or false"),
    ("admin", "PUT", "/v2/service_instances/%FF", VERSION, b"{", 400, "the instance id is not text in UTF-8"),
    ("admin", "PUT", f"{ONE}%2Fservice_bindings%2Fb", VERSION, b"{", 400, ID),
    (
        "admin",
        "PUT",
        f"{ONE}/service_bindings/b%2Flast_operation",
        VERSION,
        b"{",
        400,
        "the binding id has 1 to 255 bytes",
    ),
    ("admin", "PUT", ONE, VERSION, b"{", 415, "the body must be application/json"),
    ("admin", "PUT", ONE, VERSION | JSON, b"{", 400, "the body cannot be read: Input data was truncated"),
    (
        "admin",
        "PUT",
        ONE,
        VERSION | JSON,
        b"{}",
        400,
        "the body cannot be read: Object missing required field `service_id`",
    ),
    ("admin", "PATCH", ONE, VERSION | JSON, NO_PLAN, 400, "there is no service with this service_id"),
    ("admin", "DELETE", f"{ONE}?accepts_incomplete=x", VERSION, b"", 400, "accepts_incomplete is true or false"),
    ("admin", "DELETE", f"{ONE}?service_id={SERVICE}&other=1", VERSION, b"", 400, WANTED),
    ("admin", "DELETE", f"{ONE}{REMOVAL}&accepts_incomplete=true", VERSION, b"", 410, "there is no such instance"),
    ("admin", "GET", f"{ONE}/last_operation?operation=deprovision-1", VERSION, b"", 410, "the instance is gone"),
    ("admin", "GET", f"{ONE}/last_operation?operation=other", VERSION, b"", 404, "there is no such operation"),
    ("admin", "POST", "/admin/cells/_c/demote", {}, b"", 400, "the cell id has 1 to 255 bytes"),
    ("admin", "POST", "/admin/cells/c/demote", OTHER_VERSION, b"", 404, "there is no such cell"),
]


def test_a_request_with_several_faults_is_answered_with_the_first() -> None:
    async def act(application: Application) -> list[Any]:
        async with application.running():
            transport = httpx.ASGITransport(application.asgi, client=("127.0.0.1", 50_000))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                log_ins: dict[str, Any] = {"nobody": None, "admin": ("platform", ADMIN_TOKEN)}
                return [
                    await client.request(method, path, auth=log_ins[who], headers=headers, content=body)
                    for who, method, path, headers, body, _, _ in CASES
                ]

    access = Access([Token.of_text(Role.ADMIN, "root", ADMIN_TOKEN)])
    with open_store("memory:") as store:
        answers = asyncio.run(act(Application.build(store.engine, {"patroni-broker": build}, access=access)))
    told = [
        (case[:3], answer.status_code, answer.json()["description"][: len(case[6])])
        for case, answer in zip(CASES, answers, strict=True)
    ]
    assert told == [(case[:3], *case[5:]) for case in CASES]
