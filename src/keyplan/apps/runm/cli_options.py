"""The options of `keyplan runm`: the original's flags, each with the variable that stands for it, and our own."""

from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.apps.runm.settings import VARIABLES

__all__ = [
    "AllowAnyoneOption",
    "ApiListenOption",
    "BindAddressOption",
    "BindPortOption",
    "BootstrapTokenOption",
    "CertPathOption",
    "ConnectTimeoutOption",
    "DialTimeoutOption",
    "EndpointsOption",
    "EnforceDefinitionsOption",
    "IsolateOption",
    "KeepDeletedOption",
    "KeyPathOption",
    "ListenOption",
    "LogLevelOption",
    "ObjectTypeOption",
    "PrefixOption",
    "ProviderTypeOption",
    "RegisterOption",
    "RequestTimeoutOption",
    "RootOption",
    "ServiceNameOption",
    "TokensOption",
    "UseTlsOption",
]


def _flag(name: str, text: str, *, flag: str = "") -> Any:
    shown = f"{text} [{VARIABLES[name]}]" if name in VARIABLES else text
    return typer.Option(flag or f"--{name.replace('_', '-')}", help=shown, show_default=False)


PrefixOption = Annotated[str | None, _flag("key_prefix", "The key prefix.", flag="--storage-etcd-key-prefix")]
RootOption = Annotated[
    str | None, _flag("root", "The whole root, as in /runm/metadata/, in place of a prefix: taken as it is.")
]


ListenOption = Annotated[str | None, _flag("listen", "Where to listen, HOST:PORT, with both services.")]
ApiListenOption = Annotated[str | None, _flag("api_listen", "A second address, as the original's runm-api has.")]
BindAddressOption = Annotated[str | None, _flag("bind_address", "The host to listen on; 127.0.0.1.")]
BindPortOption = Annotated[str | None, _flag("bind_port", "The port to listen on; 10002.")]
EndpointsOption = Annotated[
    str | None, _flag("endpoints", "etcd's addresses, without --store.", flag="--storage-etcd-endpoints")
]
ConnectTimeoutOption = Annotated[
    str | None,
    _flag(
        "connect_timeout_seconds",
        "How long to wait for the store at the start; 300.",
        flag="--storage-etcd-connect-timeout-seconds",
    ),
]
RequestTimeoutOption = Annotated[
    str | None,
    _flag(
        "request_timeout_seconds",
        "How long a request to etcd may take; 1.",
        flag="--storage-etcd-request-timeout-seconds",
    ),
]
DialTimeoutOption = Annotated[
    str | None,
    _flag("dial_timeout_seconds", "Taken, and part of a request.", flag="--storage-etcd-dial-timeout-seconds"),
]
ServiceNameOption = Annotated[str | None, _flag("service_name", "The name in the registry; runmachine-metadata.")]
UseTlsOption = Annotated[bool | None, typer.Option("--use-tls/--no-use-tls", help="Serve, and speak to etcd, by TLS.")]
CertPathOption = Annotated[str | None, _flag("cert_path", "The server's certificate, PEM.")]
KeyPathOption = Annotated[str | None, _flag("key_path", "The server's key, PEM.")]
BootstrapTokenOption = Annotated[str | None, _flag("bootstrap_token", "Makes the first partition, once.")]
LogLevelOption = Annotated[str | None, _flag("log_level", "0 warnings, 1 starts and stops, 2 each call, 3 everything.")]
TokensOption = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="FILE", help="Bearer tokens, as of keyplan serve; all calls need one."),
]
AllowAnyoneOption = Annotated[
    bool, typer.Option("--allow-anyone", help="Listen beyond this machine without tokens, as the original does.")
]
EnforceDefinitionsOption = Annotated[
    bool,
    typer.Option("--enforce-definitions", help="Hold properties of every object against definitions that were set."),
]
IsolateOption = Annotated[
    bool,
    typer.Option("--isolate", help="Keep sessions to their own partition and project, in searches and creates too."),
]
KeepDeletedOption = Annotated[
    int, typer.Option("--keep-deleted", metavar="SECONDS", min=0, help="How long what is deleted can be restored.")
]
ObjectTypeOption = Annotated[
    list[str] | None,
    typer.Option("--object-type", metavar="CODE:SCOPE[=TEXT]", help="Register an object type; PARTITION or PROJECT."),
]
ProviderTypeOption = Annotated[
    list[str] | None, typer.Option("--provider-type", metavar="CODE[=TEXT]", help="Register a provider type.")
]
RegisterOption = Annotated[bool, typer.Option("--register/--no-register", help="Be found in the service registry.")]
