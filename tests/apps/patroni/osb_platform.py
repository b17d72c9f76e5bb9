"""A platform that speaks the service broker API: httpx with the headers that the API wants."""

import time
from typing import Any, Final

import httpx

__all__ = ["ADMIN_TOKEN", "PAIR", "SERVICE", "SOLO", "TRIO", "Platform"]

ADMIN_TOKEN: Final = "an-admin-token-of-a-test"
SERVICE: Final = "0b6f1d4e-8a53-4a7e-9c36-2f1f6f0c7a10"
SOLO: Final = "5a3d8c52-6b1e-4d0f-8f0a-0d7a5d1f3e01"
PAIR: Final = "5a3d8c52-6b1e-4d0f-8f0a-0d7a5d1f3e02"
TRIO: Final = "5a3d8c52-6b1e-4d0f-8f0a-0d7a5d1f3e03"
WAIT: Final = {"accepts_incomplete": "true"}


class Calls:
    """Requests, each over a connection of its own: nothing is left open when a test ends."""

    def __init__(self, url: str, token: str, headers: dict[str, str]) -> None:
        self._url = url
        self._log_in = ("platform", token)
        self._headers = headers

    def _request(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        sent = {**self._headers, **(headers or {})}
        # Why no verification: there is no TLS here, and reading the authorities costs more than the request.
        return httpx.request(
            method, f"{self._url}{path}", auth=self._log_in, headers=sent, timeout=30, verify=False, **more
        )

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self._request("GET", path, **more)

    def put(self, path: str, **more: Any) -> httpx.Response:
        return self._request("PUT", path, **more)

    def patch(self, path: str, **more: Any) -> httpx.Response:
        return self._request("PATCH", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self._request("POST", path, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self._request("DELETE", path, **more)


class Platform:
    """Calls of one broker."""

    def __init__(self, url: str, *, token: str = ADMIN_TOKEN, version: str | None = "2.17") -> None:
        headers = {} if version is None else {"X-Broker-API-Version": version}
        self.http = Calls(url, token, headers)

    def provision(self, instance: str, plan: str = PAIR, *, wait: bool = True, **parameters: Any) -> httpx.Response:
        body = {"service_id": SERVICE, "plan_id": plan, "organization_guid": "org", "space_guid": "space"}
        return self.http.put(
            f"/v2/service_instances/{instance}",
            params=WAIT if wait else {},
            json={**body, "parameters": {name.replace("_", "-"): value for name, value in parameters.items()}},
        )

    def update(self, instance: str, plan: str | None = None, **parameters: Any) -> httpx.Response:
        body: dict[str, Any] = {"service_id": SERVICE}
        if plan is not None:
            body["plan_id"] = plan
        body["parameters"] = {name.replace("_", "-"): value for name, value in parameters.items()}
        return self.http.patch(f"/v2/service_instances/{instance}", params=WAIT, json=body)

    def deprovision(self, instance: str, plan: str = PAIR) -> httpx.Response:
        params = {**WAIT, "service_id": SERVICE, "plan_id": plan}
        return self.http.delete(f"/v2/service_instances/{instance}", params=params)

    def bind(self, instance: str, binding: str, plan: str = PAIR, **more: Any) -> httpx.Response:
        path = f"/v2/service_instances/{instance}/service_bindings/{binding}"
        return self.http.put(path, json={"service_id": SERVICE, "plan_id": plan, **more})

    def unbind(self, instance: str, binding: str, plan: str = PAIR) -> httpx.Response:
        path = f"/v2/service_instances/{instance}/service_bindings/{binding}"
        return self.http.delete(path, params={"service_id": SERVICE, "plan_id": plan})

    def last(self, instance: str, operation: str | None = None) -> httpx.Response:
        params = {} if operation is None else {"operation": operation}
        return self.http.get(f"/v2/service_instances/{instance}/last_operation", params=params)

    def ended(self, instance: str, seconds_max: float = 150.0) -> dict[str, Any]:
        """Poll until the last operation has ended; return the answer."""
        give_up = time.monotonic() + seconds_max
        while True:
            answer: dict[str, Any] = self.last(instance).json()
            if answer["state"] != "in progress":
                return answer
            assert time.monotonic() < give_up, answer
            time.sleep(0.05)  # Why: the answer is what is polled.
