"""The etcd engine: a thin client of our own over grpcio, and the contract on top of it.

Read `transactions.py` first: a commit as compare/then/else. Everything above `transport.py` is plain code without
threads, which the asynchronous twin runs as it is.
"""

from keyplan.engine.etcd.engine import EtcdEngine, open_etcd
from keyplan.engine.etcd.grpc_transport import GrpcTransport, channel_options, credentials_of, transport_error
from keyplan.engine.etcd.options import ETCD_PROFILE, EtcdOptions, options_of
from keyplan.engine.etcd.transport import Message, Metadata, Method, Stream, Transport, TransportError, TransportFactory

__all__ = [
    "ETCD_PROFILE",
    "EtcdEngine",
    "EtcdOptions",
    "GrpcTransport",
    "Message",
    "Metadata",
    "Method",
    "Stream",
    "Transport",
    "TransportError",
    "TransportFactory",
    "channel_options",
    "credentials_of",
    "open_etcd",
    "options_of",
    "transport_error",
]
