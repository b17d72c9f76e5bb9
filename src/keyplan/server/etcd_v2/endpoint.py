"""HTTP of `/v2/keys`: methods, statuses, headers, long polls. As ASGI, because every heartbeat comes through here."""

import asyncio
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from keyplan.errors import AccessDeniedError, AuditLogError, CorruptionError, EngineError
from keyplan.operations import Operation as DeclaredOperation
from keyplan.operations import operations_of
from keyplan.server.access import Caller, caller_in
from keyplan.server.answers import BODY_TOO_LARGE, REASON, REQUEST_ID, AnswerError
from keyplan.server.auditing import ServiceAudit, asker_of
from keyplan.server.confined import CallerStore
from keyplan.server.etcd_member import cleaned_path, redirect_to
from keyplan.server.etcd_v2.answers import Code, KeysFailure, action_body, failure_body
from keyplan.server.etcd_v2.declared import PREFIX, Keys
from keyplan.server.etcd_v2.forms import FORM_TYPE, KeysForm, has_broken_escape, is_text, media_type_of, read_form
from keyplan.server.etcd_v2.gateway import Gateway, Waiting
from keyplan.server.etcd_v2.ledger import denied
from keyplan.server.etcd_v2.operations import Done, Operation
from keyplan.server.etcd_v2.reach import may_write
from keyplan.server.etcd_v2.records import Action
from keyplan.server.etcd_v2.tree import DEPTH_MAX, clean
from keyplan.server.proxies import address_of

__all__ = ["KeysEndpoint"]


_DECLARED: Final = {one.method: one for one in operations_of(Keys).values()}
_METHODS: Final = frozenset({"HEAD", "GET", "PUT", "POST", "DELETE"})
_PLAIN: Final = (b"Content-Type", b"text/plain; charset=utf-8")
_NOSNIFF: Final = (b"X-Content-Type-Options", b"nosniff")
_VALUELESS: Final = frozenset({Action.SET, Action.CREATE, Action.UPDATE, Action.COMPARE_AND_SWAP})

Headers = list[tuple[bytes, bytes]]


class KeysEndpoint:
    """The ASGI application of `/v2/keys` and everything below it."""

    def __init__(self, gateway: Gateway, audit: ServiceAudit) -> None:
        self._gateway = gateway
        self._audit = audit
        self._statistics = gateway.statistics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method: str = scope["method"]
        if method == "OPTIONS":
            await _answer(send, 200, [], b"")
        elif has_broken_escape(scope.get("raw_path", b"")):
            # Why this bare: etcd's HTTP library refuses such a request before etcd sees it.
            await _answer(send, 400, [_PLAIN], b"400 Bad Request")
        elif (cleaned := cleaned_path(scope["path"])) != scope["path"]:
            await redirect_to(cleaned, scope, receive, send)
        elif method not in _METHODS:
            allow = (b"Allow", b"HEAD,GET,PUT,POST,DELETE")
            await _answer(send, 405, [allow, _PLAIN, _NOSNIFF], b"Method Not Allowed\n")
        else:
            try:
                await self._keys(method, _caller_of(scope), scope, receive, send)
            except (KeysFailure, CorruptionError, AuditLogError) as error:
                failure = (
                    error if isinstance(error, KeysFailure) else KeysFailure(Code.RAFT_INTERNAL, f"keyplan: {error}")
                )
                if failure.code is Code.UNAUTHORIZED and caller_in(scope) is not None:
                    # Why: etcd tells who may not as it tells who is nobody, and the log shall not.
                    scope[REASON] = "access_denied"
                headers = self._headers(failure.index)
                if failure.is_last:
                    headers.append((b"Connection", b"close"))
                await _answer(send, failure.status, headers, failure_body(failure).encode(), is_head=method == "HEAD")

    async def _keys(self, method: str, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_text(scope.get("raw_path", b"")):
            # Why: servers put one character in the place of all such bytes, and two keys would be one.
            raise KeysFailure(Code.INVALID_FORM, "keyplan: the key is not UTF-8, and only such keys are kept here")
        path = clean(scope["path"][len(PREFIX) :])
        if path.count("/") > DEPTH_MAX:
            raise KeysFailure(Code.INVALID_FORM, f"more than {DEPTH_MAX} levels")
        body, problem = None, ""
        if method in {"PUT", "POST"}:
            media_type, problem = media_type_of(_content_type(scope))
            body = await _form_body(receive) if media_type == FORM_TYPE else None
        form = read_form(method, scope["query_string"], body, problem=problem)
        store = await self._gateway.store_of(caller)
        if method in {"GET", "HEAD"}:
            if form.is_wait:
                await self._wait(store, path, form, receive, send)
            else:
                await self._get(store, path, form, send, is_head=method == "HEAD")
            return
        await self._write(store, _DECLARED[method], _operation(method, path, form), form, scope, send)

    # ---- reads ----------------------------------------------------------------------------------------------------------

    async def _get(self, store: CallerStore, path: str, form: KeysForm, send: Send, *, is_head: bool) -> None:
        try:
            found = await self._gateway.get(store, path, is_recursive=form.is_recursive)
        except KeysFailure:
            self._statistics.count(Action.GET, is_success=False)
            raise
        self._statistics.count(Action.GET, is_success=True)
        await _answer(send, 200, self._headers(found.index, found.revision), found.body.encode(), is_head=is_head)

    async def _wait(self, store: CallerStore, path: str, form: KeysForm, receive: Receive, send: Send) -> None:
        """Answer with the headers at once, and with events as they come, until there are enough or the client goes."""
        waiting = await self._gateway.wait(
            store, path, is_recursive=form.is_recursive, is_stream=form.is_stream, wait_index=form.wait_index
        )
        waiter = waiting.waiter
        leaving = asyncio.create_task(_until_gone(receive))
        leaving.add_done_callback(lambda _task: waiter.end())
        try:
            headers = self._headers(waiting.index, waiting.revision)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while (body := await self._next_body(waiting)) is not None:
                await send({"type": "http.response.body", "body": body.encode(), "more_body": True})
                if not form.is_stream:
                    break
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            leaving.cancel()
            self._gateway.hub.leave(waiter)

    # ---- writes ---------------------------------------------------------------------------------------------------------

    async def _next_body(self, waiting: Waiting) -> str | None:
        try:
            return await self._gateway.next_body(waiting)
        except (EngineError, AnswerError):
            return None  # Why: its status was sent; a client that is answered without an event asks again.

    async def _write(
        self,
        store: CallerStore,
        declared: DeclaredOperation,
        operation: Operation,
        form: KeysForm,
        scope: Scope,
        send: Send,
    ) -> None:
        asker, path = asker_of(caller_in(scope), address_of(scope)), {"path": operation.path}
        request: str = scope.get(REQUEST_ID, "")
        try:
            if not store.is_writable:
                raise denied()
            if not may_write(store.reach(), operation):
                failure = denied()
                await self._audit.refused_change(
                    declared, asker, path, AccessDeniedError(who=store.who), request=request
                )
                raise failure
            async with self._audit.change(declared, asker, path, request=request) as change:
                done = await self._gateway.write(store, operation)
                if change is not None:
                    # Why here: several requests share a commit, which is made in the context of none of them.
                    change.note_revision(done.revision)
                    if operation.is_unique:
                        change.note_argument("path", _key_in(done))
        except KeysFailure:
            self._statistics.count(operation.action, is_success=False)
            raise
        self._statistics.count(operation.action, is_success=True)
        has_no_value = form.wants_no_value and done.action in _VALUELESS
        body = action_body(done.action) if has_no_value else done.body
        headers = self._headers(done.index, self._gateway.revision)
        await _answer(send, 201 if done.is_created else 200, headers, body.encode())

    def _headers(self, index: int, revision: int | None = None) -> Headers:
        """Return the headers of an answer; a failure has no revision."""
        identity = self._gateway.identity
        headers: Headers = [
            _content(b"application/json"),
            (b"X-Etcd-Cluster-Id", identity.cluster_hex.encode()),
            (b"X-Etcd-Index", b"%d" % index),
        ]
        if revision is not None:
            headers += [(b"X-Raft-Index", b"%d" % revision), (b"X-Raft-Term", b"%d" % identity.term)]
        return headers


def _caller_of(scope: Scope) -> Caller:
    """Return who asks. Raises KeysFailure for nobody."""
    caller = caller_in(scope)
    if caller is None:
        raise denied()
    return caller


def _key_in(done: Done) -> str:
    """Return the key that an operation was on: of one that makes a name, the event alone tells it."""
    key: str = msgspec.json.decode(done.body)["node"]["key"]
    return key


def _operation(method: str, path: str, form: KeysForm) -> Operation:
    """Return the write that is asked for, by the rules of etcd's dispatch."""
    is_compared = bool(form.previous_value or form.previous_index)
    if method == "DELETE":
        return Operation(
            Action.COMPARE_AND_DELETE if is_compared else Action.DELETE,
            path,
            is_directory=form.is_directory,
            is_recursive=form.is_recursive,
            previous_value=form.previous_value,
            previous_index=form.previous_index,
        )
    if method == "POST" or form.must_exist is False:
        action = Action.CREATE
    elif is_compared:
        action = Action.COMPARE_AND_SWAP
    else:
        action = Action.UPDATE if form.must_exist else Action.SET
    return Operation(
        action,
        path,
        form.value,
        is_directory=form.is_directory,
        is_unique=method == "POST",
        is_refresh=form.is_refresh,
        ttl_seconds=form.ttl_seconds,
        previous_value=form.previous_value,
        previous_index=form.previous_index,
    )


# ---- HTTP -------------------------------------------------------------------------------------------------------------


def _content(media_type: bytes) -> tuple[bytes, bytes]:
    return b"Content-Type", media_type


async def _answer(send: Send, status: int, headers: Headers, body: bytes, *, is_head: bool = False) -> None:
    headers.append((b"Content-Length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else body, "more_body": False})


def _content_type(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"content-type":
            return str(value.decode("latin-1"))
    return ""


async def _form_body(receive: Receive) -> bytes:
    """Return a request's body. Raises KeysFailure for one that is too large: clients know etcd's words for it."""
    parts: list[bytes] = []
    while True:
        try:
            message = await receive()
        except AnswerError as error:
            if error.status != BODY_TOO_LARGE:
                raise
            raise KeysFailure(Code.INVALID_FORM, "http: POST too large", is_last=True) from error
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
