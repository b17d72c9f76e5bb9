"""The command `keyplan serve`."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

import typer

from keyplan.cli.audit_log import AuditOptions
from keyplan.cli.layout_checks import LayoutCheckOption, layout_check_of_option
from keyplan.cli.options import (
    ConfigOption,
    SecretsOption,
    StoreOption,
    layout_of_option,
    read_settings,
    secrets_of_option,
    store_url_of_option,
)
from keyplan.errors import InvalidInputError
from keyplan.server import (
    GRACE_SECONDS_DEFAULT,
    LISTEN_DEFAULT,
    TOKEN_VARIABLES,
    Access,
    AllowedOrigins,
    EdgeBounds,
    PolicyAccess,
    Role,
    ServerOptions,
    TrustedProxies,
    configure_logs,
    read_tokens,
    serve,
    tokens_of_environment,
)

__all__ = ["serve_command"]


_BOUNDS = EdgeBounds()

_EXPLORER = "explorer"
_EXPLORER_LAYOUT = "explorer.layout"

_LOCAL_ROLES = {"client": Role.CLIENT, "admin": Role.ADMIN, "none": None}


LayoutsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--layout",
        "-l",
        metavar="NAME[?PARAMETER=VALUE]",
        help="A layout for --app explorer: an installed name, module:Class, or FILE.json; may be repeated.",
    ),
]


class CallerOptions(NamedTuple):
    """Who may ask: a record of options, for `spread`."""

    access: Annotated[
        Path | None, typer.Option("--access", metavar="FILE", help="Who may do what: see keyplan access.")
    ] = None
    tokens: Annotated[
        Path | None, typer.Option("--tokens", metavar="FILE", help="Tokens: a line ROLE NAME TOKEN for each.")
    ] = None
    local_role: Annotated[
        str | None,
        typer.Option(
            "--local-role",
            metavar="ROLE",
            help="The role of this machine without a token: client (as it is), admin or none.",
            show_default=False,
        ),
    ] = None
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="A proxy, a network of them, or unix, whose X-Forwarded-For is believed; may be repeated.",
        ),
    ] = None

    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin",
            metavar="ORIGIN",
            help="Let a browser's pages of https://HOST[:PORT] ask and read here; may be repeated.",
        ),
    ] = None

    def found(self) -> Access:
        """Return who may ask, whose word counts for where they ask from, and from which sites' pages."""
        return replace(
            self._known(),
            proxies=TrustedProxies.of_texts(self.trusted_proxy or ()),
            origins=AllowedOrigins.of_texts(self.allow_origin or ()),
        )

    def _known(self) -> Access:
        """Return who may ask: what an access file says, or tokens and the role of this machine; never both."""
        if self.access is None:
            role = "client" if self.local_role is None else self.local_role
            if role not in _LOCAL_ROLES:
                raise InvalidInputError(source="--local-role", problem=f"{role!r} is not client, admin or none")
            known = [*(read_tokens(self.tokens) if self.tokens else ()), *tokens_of_environment(os.environ)]
            # Why: who names the role means this machine; who does not has themselves in mind.
            return Access(known, _LOCAL_ROLES[role], is_open_to_other_users=self.local_role is not None)
        given = {"--tokens": self.tokens, "--local-role": self.local_role}
        given |= {name: os.environ.get(name) for name in TOKEN_VARIABLES}
        if others := [name for name, value in given.items() if value]:
            problem = f"the access file alone says who may ask: leave out {', '.join(others)}"
            raise InvalidInputError(source="--access", problem=problem)
        return PolicyAccess.of_file(self.access)


class TlsOptions(NamedTuple):
    """Certificates: a record of options, for `spread`."""

    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="Serve HTTPS with this chain, in PEM.")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key, where it is another file.")
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        typer.Option("--tls-client-ca", metavar="FILE", help="Who signs the certificates of --access, in PEM."),
    ] = None


class BoundOptions(NamedTuple):
    """What the server takes: a record of options, for `spread`."""

    body_bytes: Annotated[
        int, typer.Option("--body-bytes", metavar="N", min=1, help="At most so many bytes in a request's body.")
    ] = _BOUNDS.body_bytes_max
    body_seconds: Annotated[
        float,
        typer.Option("--body-seconds", metavar="N", help="A body comes so quickly, or 10 KB a second."),
    ] = _BOUNDS.body_seconds_max
    idle_seconds: Annotated[
        float, typer.Option("--idle-seconds", metavar="N", help="Close a connection that asks nothing for so long.")
    ] = _BOUNDS.idle_seconds_max
    connections: Annotated[
        int, typer.Option("--connections", metavar="N", min=1, help="At most so many connections.")
    ] = _BOUNDS.connections_max
    connections_per_address: Annotated[
        int | None,
        typer.Option(
            "--connections-per-address",
            metavar="N",
            min=1,
            help="At most so many from one address; by default half of all.",
            show_default=False,
        ),
    ] = None

    held_bytes: Annotated[
        int,
        typer.Option(
            "--held-bytes", metavar="N", min=1 << 20, help="At most so many bytes of bodies and answers in memory."
        ),
    ] = _BOUNDS.held_bytes_max
    held_bytes_per_caller: Annotated[
        int | None,
        typer.Option(
            "--held-bytes-per-caller",
            metavar="N",
            min=1 << 20,
            help="At most so many of one caller; by default a quarter of all.",
            show_default=False,
        ),
    ] = None

    def found(self) -> EdgeBounds:
        """Return the bounds. Raises InvalidInputError."""
        return EdgeBounds(
            body_bytes_max=self.body_bytes,
            body_seconds_max=self.body_seconds,
            idle_seconds_max=self.idle_seconds,
            connections_max=self.connections,
            connections_per_address_max=self.connections_per_address,
            held_bytes_max=self.held_bytes,
            held_bytes_per_caller_max=self.held_bytes_per_caller,
        )


def serve_command(
    *,
    store: StoreOption = None,
    config: ConfigOption = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            "--listen",
            metavar="ADDR",
            help=f"HOST:PORT, [IPv6]:PORT or unix:PATH; may be repeated. By default {LISTEN_DEFAULT}.",
        ),
    ] = None,
    app: Annotated[
        list[str] | None,
        typer.Option("--app", metavar="NAME", help="Also serve this application's protocol; may be repeated."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--setting", metavar="NAME.KEY=VALUE", help="A setting of the service NAME; may be repeated."),
    ] = None,
    layout: LayoutsOption = None,
    secrets: SecretsOption = None,
    layout_check: LayoutCheckOption = None,
    callers: CallerOptions,
    tls: TlsOptions,
    audit: AuditOptions,
    bounds: BoundOptions,
    grace_seconds: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", min=0, help="Wait so long for open requests at the end.")
    ] = GRACE_SECONDS_DEFAULT,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Fail when there is no store; by default it is made.")
    ] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    """Serve a store over HTTP until SIGTERM or Ctrl-C: the key space registry, and the protocols of applications.

    Once it answers, its addresses are printed on standard output, one a line. Without tokens it listens on this machine alone.
    Tokens come from --tokens, KEYPLAN_ADMIN_TOKEN and KEYPLAN_CLIENT_TOKEN; or an access file says who may do what.
    """
    if log_level not in {"debug", "info", "warning", "error"}:
        raise InvalidInputError(source="--log-level", problem=f"{log_level!r} is not debug, info, warning or error")
    if tls.tls_client_ca and not (callers.access and tls.tls_certificate):
        problem = "certificates of clients are known by an access file, over TLS: give --access and --tls-certificate"
        raise InvalidInputError(source="--tls-client-ca", problem=problem)
    keys = secrets_of_option(secrets, config)
    options = ServerOptions(
        store_url=store_url_of_option(store, config),
        listen=listen or (LISTEN_DEFAULT,),
        services=app or (),
        settings=_settings(setting or []) | _layouts(app or [], setting or [], layout or [], config),
        access=callers.found(),
        tls_certificate=tls.tls_certificate,
        tls_key=tls.tls_key,
        tls_client_authority=tls.tls_client_ca,
        grace_seconds=grace_seconds,
        bounds=bounds.found(),
        has_to_exist=no_create,
        audit_log=audit.audit_log,
        audit_syncs=audit.syncs(),
        audit_rotation=audit.rotation(),
        # Why read now: a server without its keys is not to start, rather than to fail at the first secret.
        secrets=None if keys is None else keys.keys,
        layout_check=layout_check_of_option(layout_check, config),
    )
    configure_logs(level=log_level)
    serve(options, on_listening=_print_addresses)


def _layouts(apps: list[str], given: list[str], layouts: list[str], config: Path | None) -> dict[str, str]:
    """Return the setting of the explorer's layouts: --layout, else KEYPLAN_LAYOUT, else those of keyplan.toml."""
    is_set = any(assignment.startswith(f"{_EXPLORER_LAYOUT}=") for assignment in given)
    if layouts and (is_set or _EXPLORER not in apps):
        problem = f"{_EXPLORER_LAYOUT} is set too: pass one of them" if is_set else f"pass --app {_EXPLORER} with it"
        raise InvalidInputError(source="--layout", problem=problem)
    if is_set or _EXPLORER not in apps:
        return {}
    named = os.environ.get("KEYPLAN_LAYOUT", "")
    found = layouts or ([named] if named else [])
    settings = read_settings(config)
    if not found and settings.layout:
        own = layout_of_option(settings.layout).spec.root.field_names
        parameters = urlencode({name: value for name, value in settings.parameters.items() if name in own})
        found = [f"{settings.layout}?{parameters}" if parameters else settings.layout]
    return {_EXPLORER_LAYOUT: ",".join(found)} if found else {}


def _print_addresses(addresses: object) -> None:
    assert isinstance(addresses, list)
    sys.stdout.write("".join(f"{address}\n" for address in addresses))
    sys.stdout.flush()  # Why: the process that started the server reads the addresses.


def _settings(given: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not (name and equals):
            # Why without the text: it may hold a secret.
            raise InvalidInputError(source="--setting", problem="a setting is NAME.KEY=VALUE")
        if name in settings:
            raise InvalidInputError(source="--setting", problem=f"{name} is given twice")
        settings[name] = value
    return settings
