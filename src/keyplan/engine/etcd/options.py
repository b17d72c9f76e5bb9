"""How an etcd store is reached and what its servers are configured to take: from a URL and the environment."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from keyplan.engine.profile import Capability, Profile
from keyplan.engine.url import EngineUrl

__all__ = [
    "ETCD_PROFILE",
    "OPERATIONS_MAX_DEFAULT",
    "REQUEST_BYTES_MAX_DEFAULT",
    "TIMEOUT_SECONDS_DEFAULT",
    "EtcdOptions",
    "options_of",
    "profile_of",
]

OPERATIONS_MAX_DEFAULT: Final = 128
"""What etcd takes in a transaction unless it was started with another --max-txn-ops."""

REQUEST_BYTES_MAX_DEFAULT: Final = 1_572_864
"""What etcd takes in a request unless it was started with another --max-request-bytes."""

TIMEOUT_SECONDS_DEFAULT: Final = 10
"""Why: etcd gives up a proposal after some seven seconds; an election takes one or two."""

REQUEST_ROOM_BYTES: Final = 16_384
"""What a request of 128 operations holds beside keys and values: field tags, lengths, revisions, and the reads that name a
failed guard. A commit whose guards have long keys may need more; then the encoded request is measured, and refused."""

_DEFAULT_PORT: Final = 2379
_OPTIONS: Final = frozenset({
    "ca", "cert", "key", "operations_max", "password", "request_bytes_max", "server_name", "timeout", "tls", "user",
})  # fmt: skip
_SECRETS: Final = {"user": "KEYPLAN_ETCD_USER", "password": "KEYPLAN_ETCD_PASSWORD"}
_FILES: Final = {"ca": "KEYPLAN_ETCD_CA", "cert": "KEYPLAN_ETCD_CERT", "key": "KEYPLAN_ETCD_KEY"}
_HOST = re.compile(r"(\[[0-9A-Za-z:.%_-]+\]|[^\[\]:/\s]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """Where the servers are and how they are spoken to. What is secret, or the bytes of a file, is in no `repr`.

    `ca`, `cert` and `key` are PEM: the authority to trust (None: the usual ones), and the client's certificate.
    `timeout_seconds` bounds a call with all its attempts. `operations_max` and `request_bytes_max` are the servers'
    --max-txn-ops and --max-request-bytes. `shown_url` is for messages.
    """

    endpoints: tuple[str, ...]
    shown_url: str = "etcd:"
    has_tls: bool = False
    ca: bytes | None = field(default=None, repr=False)
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    operations_max: int = OPERATIONS_MAX_DEFAULT
    request_bytes_max: int = REQUEST_BYTES_MAX_DEFAULT


def options_of(url: EngineUrl, environment: Mapping[str, str] = os.environ) -> EtcdOptions:
    """Read `etcd://[user:password@]host[:port][,host...][?option=value&...]`.

    Options: `user`, `password`; `tls`, `ca`, `cert`, `key` (files), `server_name`; `timeout` in seconds; `operations_max`,
    `request_bytes_max`. User, password and the files may also come from KEYPLAN_ETCD_USER, _PASSWORD, _CA, _CERT and _KEY; what
    the URL says goes first. Raises EngineOpenError with what is wrong.
    """
    url.check_options(_OPTIONS)
    login, _, hosts = url.address.removeprefix("//").rpartition("@")
    given: dict[str, str] = {
        name: environment[variable] for name, variable in _SECRETS.items() if variable in environment
    }
    if login:
        user, has_password, password = login.partition(":")
        given |= {"user": user} | ({"password": password} if has_password else {})
    given |= {name: url.options[name] for name in _SECRETS if name in url.options}
    if ("user" in given) != ("password" in given):
        raise url.refuse("a user needs a password, and a password a user")
    for name, text in (*given.items(), ("server_name", url.options.get("server_name", ""))):
        if not text.isprintable():
            raise url.refuse(f"the {name} holds a character that is none of a text, or invisible")
    files = {
        name: value for name, variable in _FILES.items() if (value := url.options.get(name, environment.get(variable)))
    }
    if ("cert" in files) != ("key" in files):
        raise url.refuse("a client certificate needs its key, and a key its certificate: give both cert and key")
    has_tls = url.flag("tls", default=bool(files) or "server_name" in url.options)
    if not has_tls and (files.keys() & url.options.keys()):
        raise url.refuse("ca, cert and key mean nothing with tls=false")
    return EtcdOptions(
        endpoints=tuple(_endpoint(url, host) for host in hosts.rstrip("/").split(",")),
        shown_url=url.text,
        has_tls=has_tls,
        ca=_read(url, "ca", files) if has_tls else None,
        cert=_read(url, "cert", files) if has_tls else None,
        key=_read(url, "key", files) if has_tls else None,
        server_name=url.options.get("server_name"),
        user=given.get("user"),
        password=given.get("password"),
        timeout_seconds=url.number("timeout", default=TIMEOUT_SECONDS_DEFAULT, minimum=1),
        operations_max=url.number("operations_max", default=OPERATIONS_MAX_DEFAULT, minimum=1),
        request_bytes_max=url.number(
            "request_bytes_max", default=REQUEST_BYTES_MAX_DEFAULT, minimum=2 * REQUEST_ROOM_BYTES
        ),
    )


def _endpoint(url: EngineUrl, host: str) -> str:
    match = _HOST.fullmatch(host)
    if match is None or not host.isprintable() or int(match.group(2) or _DEFAULT_PORT) > 65_535:
        example = "as in etcd://host1:2379,host2:2379 or etcd://[::1]:2379"
        raise url.refuse(f"an etcd URL names its hosts, {example}; {host!r} is none")
    return f"{match.group(1)}:{match.group(2) or _DEFAULT_PORT}"


def _read(url: EngineUrl, name: str, files: Mapping[str, str]) -> bytes | None:
    path = files.get(name)
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise url.refuse(f"the file of {name} cannot be read: {error}") from error


def profile_of(options: EtcdOptions) -> Profile:
    """Return what etcd can do with servers configured like this. It cannot hold an empty key."""
    return Profile(
        name="etcd",
        capabilities=frozenset(Capability),
        key_bytes_max=None,
        value_bytes_max=None,
        commit_operations_max=options.operations_max,
        commit_bytes_max=options.request_bytes_max - REQUEST_ROOM_BYTES,
        empty_key=False,
    )


ETCD_PROFILE: Final = profile_of(EtcdOptions(endpoints=()))
"""What etcd can do with servers that were started without options."""
