"""Writes the reference pages of HTTP from OpenAPI descriptions: `python -m tests.server.http_reference`. A test compares."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from keyplan.apps.cloudchamber.service import DESCRIPTION as CLOUDCHAMBER
from keyplan.apps.patroni.broker_service import DESCRIPTION as BROKER
from keyplan.server.explorer.operations import DESCRIPTION as EXPLORER
from keyplan.server.keyspaces import DESCRIPTION as KEYSPACES
from keyplan.server.openapi import merged
from keyplan.server.shell import DESCRIPTION as SHELL

__all__ = ["PAGES", "Page"]

_REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference"


class Page(NamedTuple):
    """A page: how it begins, and the descriptions that it is made from, by the names of their services."""

    introduction: str
    descriptions: Mapping[str, Mapping[str, Any]]

    def text(self) -> str:
        """Return the page."""
        description = merged([*self.descriptions.items()], version="")
        parts = [self.introduction, "## Routes\n", *_routes(description)]
        parts += ["## Objects\n", *_objects(description["components"]["schemas"])]
        return "\n".join(parts)


_SERVER: Final = """# The HTTP API

What `keyplan serve` answers: its own routes, those of the key space registry, and with `--app explorer` those below `/explore`
([The explorer](../guide/explorer.md)). This page is made from the OpenAPI 3.1 description, which a server gives at
`/openapi.json`; other services add theirs there. How to run a server, and who may ask: [Serving a store](../guide/serving.md).

What an operation *needs* is the grant that its declaration names; a token's role stands for grants: an administrator has all of
them, a client what is not said to be for administrators.

An error is `{"error": {"code", "message", "detail"}}` with the status of its row below; the codes are those of
[errors](errors.md), with `_` for `-`. 401 is for a token that is not known, 413 and 431 are for what is too large, 415 is for a
body that is not `application/json`.
"""

_CLOUDCHAMBER: Final = """# CloudChamber over HTTP

What `keyplan serve --app cloudchamber` answers besides [the routes of the server](http.md): CloudChamber's REST API, as
[the guide](../guide/cloudchamber.md) introduces it. This page is made from the OpenAPI 3.1 description, which a server gives at
`/openapi.json`.

A session is a cookie, which `PUT /api/users/{name}?op=login` gives. Paths may be written in any case. Bodies and answers are
proto3 JSON: a field that is left out is zero, numbers of 64 bits are strings. A stored record keeps the fields that a newer
program has stored; a body with others that nobody knows is a 400. Errors are text. What an operation *needs* is the grant that
its declaration names; a user's rights stand for grants.
"""

_BROKER: Final = """# The service broker over HTTP

What `keyplan serve --app patroni-broker` answers besides [the routes of the server](http.md): the Open Service Broker API 2.17,
and below `/admin` what an operator asks, as [the guide](../guide/patroni.md) introduces them. This page is made from the
OpenAPI 3.1 description, which a server gives at `/openapi.json`.

Every request logs in by Basic authentication, with the token of an administrator, or of a principal, as the password. Below
`/v2` it says its version, as in `X-Broker-API-Version: 2.17`. Words of a query and fields of a body that no operation has are
passed over. An error is a [BrokerFailure](#brokerfailure). What an operation *needs* is the grant that its declaration names;
an administrator has them all.
"""

PAGES: Final = {
    _REFERENCE / "http.md": Page(_SERVER, {"server": SHELL, "keyspaces": KEYSPACES, "explorer": EXPLORER}),
    _REFERENCE / "cloudchamber-http.md": Page(_CLOUDCHAMBER, {"cloudchamber": CLOUDCHAMBER}),
    _REFERENCE / "broker-http.md": Page(_BROKER, {"patroni-broker": BROKER}),
}


def _routes(description: dict[str, Any]) -> Iterator[str]:
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            if method != "parameters":
                yield f"### `{method.upper()} {path}`\n"
                yield f"{operation['summary']}\n"
                if "x-needs" in operation:
                    noted = " An audit log notes it, also where it is refused." * ("x-discloses" in operation)
                    yield f"{_needs(operation['x-needs'])}{noted}\n"
                yield from _inputs([*operations.get("parameters", ()), *operation.get("parameters", ())], operation)
                yield from _answers(operation)


def _needs(needs: dict[str, str]) -> str:
    named = f" `{needs['named']}`" if "named" in needs else ""
    return f"Needs `{needs['act']}` on the {needs['on']}{named}." if needs["on"] != "nothing" else "Needs no grant."


def _inputs(parameters: list[dict[str, Any]], operation: dict[str, Any]) -> Iterator[str]:
    named = [one for one in parameters if one["in"] != "path" or one.get("description")]
    if named:
        yield "| Parameter | Type | Meaning |\n|---|---|---|"
        for parameter in named:
            yield f"| `{parameter['name']}` | {_type(parameter['schema'])} | {_clause(parameter.get('description', ''))} |"
        yield ""
    body = operation.get("requestBody")
    if body is not None:
        media, content = next(iter(body["content"].items()))
        schema = content["schema"]
        if media != "application/json":
            yield f"Body: {schema['description']}, `{media}`.\n"
            return
        yield f"Body: {_type(schema) if '$ref' in schema else 'an object with some of the fields of the answer'}.\n"


def _answers(operation: dict[str, Any]) -> Iterator[str]:
    good = [(status, answer) for status, answer in operation["responses"].items() if status[0] == "2"]
    bad = [status for status in operation["responses"] if status[0] in "45" and status != "401"]
    for status, answer in good:
        content = next(iter(answer.get("content", {}).values()), None)
        words = f" {_type(content['schema'])}." if content is not None else ""
        yield f"{status}:{words} {answer['description']}\n"
    if bad:
        yield f"Errors: {', '.join(sorted(bad))}.\n"


def _objects(schemas: dict[str, Any]) -> Iterator[str]:
    # Why sorted: the order in which services are imported is nobody's promise.
    for name, schema in sorted(schemas.items()):
        yield f"### {name}\n"
        if schema.get("description"):
            yield f"{schema['description']}\n"
        yield "| Field | Type | Meaning |\n|---|---|---|"
        for field, inner in schema["properties"].items():
            optional = "" if field in schema.get("required", ()) else ", may be left out"
            yield f"| `{field}` | {_type(inner)}{optional} | {_clause(inner.get('description', ''))} |"
        yield ""


def _choice(word: str | None) -> str:
    return "nothing" if word == "" else f"`{'null' if word is None else word}`"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(_choice(word) for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    kind = schema.get("type", "any")
    words = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array":
        words = f"array of {_type(schema['items'])}"
    if kind == "object" and schema.get("properties"):
        words = f"object of {', '.join(f'`{name}`' for name in schema['properties'])}"
    if "pattern" in schema and "A-F" not in schema["pattern"] and "a-f" not in schema["pattern"]:
        words += f" `{schema['pattern']}`".replace("|", "\\|")
    elif "pattern" in schema:
        words += " of hex digits"
    if "minimum" in schema and "maximum" in schema and schema["maximum"] < 1 << 32:
        words += f" from {schema['minimum']} to {schema['maximum']}"
    return words + (f", {schema['default']} by default" if schema.get("default") not in {None, "", False} else "")


def _clause(text: str) -> str:
    return text.rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    for path, made in PAGES.items():
        path.write_text(made.text())
