"""One process that serves a store over HTTP: the shell, which services are mounted on, and the key space registry.

A service is an entry point of the group `keyplan.services`: a name and `build(context: ServiceContext) -> Service`.
"""

from keyplan.server.access import Access, Caller, Role, Token, caller_of, require_admin, require_unrefused
from keyplan.server.answers import REQUEST_ID, AnswerError, JsonAnswer, answer_error_of, body_of, failure
from keyplan.server.application import BUILT_IN_SERVICES, Application, service_builders
from keyplan.server.auditing import NotingEngine, ServiceAudit, asker_of, note_access_file, note_answer
from keyplan.server.bounds import BODY_BYTES_MAX, BODY_BYTES_PER_SECOND_MIN, HEADER_BYTES_MAX, EdgeBounds
from keyplan.server.closing import Closing
from keyplan.server.confined import WHOLE_STORE, CallerStore, Stores, layout_areas, layout_state_areas
from keyplan.server.edge import Edge, RequestLine, told_failure
from keyplan.server.gate import allow_body
from keyplan.server.guessing import Guesses, place_of
from keyplan.server.holding import FREE_BYTES, Excess, Holding
from keyplan.server.listen import LISTEN_DEFAULT
from keyplan.server.logs import LOGGER, configure_logs
from keyplan.server.openapi import FAILURE, answers
from keyplan.server.operations import OperationRoute, Refusal, Responder
from keyplan.server.origins import AllowedOrigins
from keyplan.server.peers import Line
from keyplan.server.places import Full, Places
from keyplan.server.principals import PolicyAccess
from keyplan.server.process import GRACE_SECONDS_DEFAULT, ServerOptions, serve
from keyplan.server.proxies import TrustedProxies, address_of
from keyplan.server.reading import ReadAllowance
from keyplan.server.refusals import RefusalLog
from keyplan.server.reports import LayoutReport, ReportCell, ReportFact, ReportSection, ReportTable
from keyplan.server.rpc import (
    RpcAnswer,
    RpcEndedError,
    RpcFailure,
    RpcPlace,
    RpcRoute,
    RpcStream,
    RpcTerms,
    messages_of,
    require_grpc,
)
from keyplan.server.rpc_asking import RpcAsking, rpc_address, rpc_certificate, rpc_token
from keyplan.server.rpc_tls import RpcTls, rpc_tls
from keyplan.server.service import SERVICE_GROUP, Service, ServiceBuilder, ServiceContext, ServiceSettings
from keyplan.server.shell import NEEDS as SERVER_NEEDS
from keyplan.server.tokens import TOKEN_CHARACTERS_MIN, TOKEN_VARIABLES, read_tokens, tokens_of_environment
from keyplan.server.upgrading import Session, Upgraded
from keyplan.server.workers import Workers

__all__ = [
    "BODY_BYTES_MAX",
    "BODY_BYTES_PER_SECOND_MIN",
    "BUILT_IN_SERVICES",
    "FAILURE",
    "FREE_BYTES",
    "GRACE_SECONDS_DEFAULT",
    "HEADER_BYTES_MAX",
    "LISTEN_DEFAULT",
    "LOGGER",
    "REQUEST_ID",
    "SERVER_NEEDS",
    "SERVICE_GROUP",
    "TOKEN_CHARACTERS_MIN",
    "TOKEN_VARIABLES",
    "WHOLE_STORE",
    "Access",
    "AllowedOrigins",
    "AnswerError",
    "Application",
    "Caller",
    "CallerStore",
    "Closing",
    "Edge",
    "EdgeBounds",
    "Excess",
    "Full",
    "Guesses",
    "Holding",
    "JsonAnswer",
    "LayoutReport",
    "Line",
    "NotingEngine",
    "OperationRoute",
    "Places",
    "PolicyAccess",
    "ReadAllowance",
    "Refusal",
    "RefusalLog",
    "ReportCell",
    "ReportFact",
    "ReportSection",
    "ReportTable",
    "RequestLine",
    "Responder",
    "Role",
    "RpcAnswer",
    "RpcAsking",
    "RpcEndedError",
    "RpcFailure",
    "RpcPlace",
    "RpcRoute",
    "RpcStream",
    "RpcTerms",
    "RpcTls",
    "ServerOptions",
    "Service",
    "ServiceAudit",
    "ServiceBuilder",
    "ServiceContext",
    "ServiceSettings",
    "Session",
    "Stores",
    "Token",
    "TrustedProxies",
    "Upgraded",
    "Workers",
    "address_of",
    "allow_body",
    "answer_error_of",
    "answers",
    "asker_of",
    "body_of",
    "caller_of",
    "configure_logs",
    "failure",
    "layout_areas",
    "layout_state_areas",
    "messages_of",
    "note_access_file",
    "note_answer",
    "place_of",
    "read_tokens",
    "require_admin",
    "require_grpc",
    "require_unrefused",
    "rpc_address",
    "rpc_certificate",
    "rpc_tls",
    "rpc_token",
    "serve",
    "service_builders",
    "tokens_of_environment",
    "told_failure",
]
