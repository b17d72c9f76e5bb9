"""What OpenAPI can say of the v2 keys API."""

from typing import Any, Final

__all__ = ["OPENAPI"]

_KEYS: Final[dict[str, Any]] = {
    "parameters": [{"name": "path", "in": "path", "required": True, "schema": {"type": "string"}}],
    **{
        method: {
            "summary": summary,
            "tags": ["etcd-v2"],
            "responses": {
                "200": {"description": "An event or a node, as etcd's v2 API writes it."},
                "default": {"description": "`errorCode`, `message`, `cause`, `index`."},
            },
        }
        for method, summary in (
            ("get", "Read a key or a directory, or wait for its next event."),
            ("put", "Set, create, update, compare and swap, or refresh a key."),
            ("post", "Create a key under a name made of its index."),
            ("delete", "Delete a key or a directory, or compare and delete."),
        )
    },
}


def _read(summary: str) -> dict[str, Any]:
    return {"get": {"summary": summary, "tags": ["etcd-v2"], "responses": {"200": {"description": "It."}}}}


OPENAPI: Final[dict[str, Any]] = {
    "paths": {
        "/v2/keys/{path}": _KEYS,
        "/v2/machines": _read("The addresses of the gateways, as text."),
        "/v2/members": _read("The gateways as members of an etcd cluster."),
        "/v2/members/leader": _read("The member that leads."),
        "/v2/stats/self": _read("Who answers, and since when."),
        "/v2/stats/store": _read("Counters of requests."),
        "/v2/stats/leader": _read("Followers of the leader: none."),
    }
}
