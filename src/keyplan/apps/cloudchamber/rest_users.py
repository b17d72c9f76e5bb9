"""Users over HTTP (5.2): accounts, logins, passwords. Who may do what, accounts.py decides."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from keyplan.apps.cloudchamber.accounts import described_rights, is_password, rights_of
from keyplan.apps.cloudchamber.records import Rights, User
from keyplan.apps.cloudchamber.refusals import (
    RefusedError,
    invalid,
    no_such_page,
    permission_denied,
    quoted,
)
from keyplan.apps.cloudchamber.rest_bodies import (
    UserDefinition,
    UserEntry,
    UserList,
    UserPassword,
    UserPublic,
    UserUpdate,
    etag,
    message_answer,
    message_of,
    revision_expected,
    text_answer,
)
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler, Operation, Query
from keyplan.apps.cloudchamber.sessions import COOKIE

__all__ = ["user_operations"]

_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9]*")
_RIGHTS: Final = {info.encode_name: info.name for info in msgspec.structs.fields(Rights) if info.type is bool}
"""The rights as they are spelled in JSON, and in the record."""
_FAILED: Final = "authentication failed, invalid user name or password"


def user_operations(handler: Handler) -> Sequence[Operation]:
    """Return the operations on users."""
    users = _Users(handler)
    one = "/api/users/{name}"
    queries = (
        Query("op", "log in with the password as the body, in plain text, or log out", ("login", "logout")),
        Query("password", "change the password: the body is a UserPassword"),
    )
    return [
        Operation(
            "GET",
            "/api/users",
            users.list,
            "List the users, or those with a right.",
            UserList,
            queries=[Query("right", "only users with this right", tuple(_RIGHTS))],
            failures="400 403 409",
            has_slash=True,
        ),
        Operation("POST", one, users.create, "Create a user.", body=UserDefinition, failures="400 403 404 413"),
        Operation("GET", one, users.read, "Read a user.", UserPublic, failures="403 404"),
        Operation(
            "PUT",
            one,
            users.put,
            "Change what a user may do; or log in, log out, change the password.",
            UserPublic,
            UserUpdate,
            text_body="the password of a login",
            needs_match=True,
            queries=queries,
            failures="400 403 404 409 413 429",
        ),
        Operation("DELETE", one, users.delete, "Delete a user.", failures="403 404"),
    ]


class _Users:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._accounts = handler.accounts
        self._run = handler.context.run

    # ---- accounts --------------------------------------------------------------------------------------------------------

    async def list(self, request: AuthenticatedRequest) -> Response:
        caller, given = request.caller(), request.http.query_params.get("right")
        right = None if given is None else _RIGHTS.get(given)
        if given is not None and right is None:
            raise invalid(f"there is no right {quoted(given)}")
        found = await self._run(self._accounts.list, caller, right=right)
        path = request.http.url.path.lower().rstrip("/")
        entries = {
            key: UserEntry(
                name=user.name or key, uri=f"{path}/{quote(user.name or key, safe='')}", protected=user.never_delete
            )
            for key, user in found.records
        }
        for key in found.damaged:
            entries[key] = UserEntry(name=key, uri=f"{path}/{quote(key, safe='')}", damaged=True)
        return message_answer(UserList(users=[entries[key] for key in sorted(entries)]))

    async def create(self, request: AuthenticatedRequest) -> Response:
        name = _named(request.literal())
        caller = request.caller()
        await self._require_manager(caller)
        wanted = await message_of(request.http, UserDefinition)
        rights = wanted.rights or Rights()
        create = self._accounts.create
        revision = await self._run(create, caller, name, wanted.password, enabled=wanted.enabled, rights=rights)
        enabled = "true" if wanted.enabled else "false"
        text = f"User {quoted(name)} created, enabled: {enabled}, rights: {described_rights(rights)}"
        return text_answer(text, headers=etag(revision))

    async def read(self, request: AuthenticatedRequest) -> Response:
        name = _named(request.name())
        found = await self._handler.context.read(self._accounts.read, request.caller(), name)
        return message_answer(_shown(found.record), revision=found.revision)

    async def put(self, request: AuthenticatedRequest) -> Response:
        _named(request.name())
        query = request.http.query_params
        if "op" in query:
            return await self._operate(request, query["op"])
        if "password" in query:
            return await self._set_password(request)
        return await self._update(request)

    async def _update(self, request: AuthenticatedRequest) -> Response:
        name = request.name()
        if COOKIE not in request.http.cookies:
            raise RefusedError(400, "http: named cookie not present", is_bare=True)
        caller = request.caller()
        await self._require_manager(caller, name)
        expected = revision_expected(request.http)
        wanted = await message_of(request.http, UserUpdate)
        rights = wanted.rights or Rights()
        update = self._accounts.update
        found = await self._run(update, caller, name, enabled=wanted.enabled, rights=rights, expected_revision=expected)
        return message_answer(_shown(found.record), revision=found.revision)

    async def delete(self, request: AuthenticatedRequest) -> Response:
        name = _named(request.name())
        await self._run(self._accounts.delete, request.caller(), name)
        return text_answer(f"User {quoted(name)} deleted.")

    async def _require_manager(self, caller: str, name: str | None = None) -> None:
        """Refuse before the body is looked at, as the original does; the act itself asks again."""
        if not await self._handler.context.read(self._accounts.may_manage, caller, name):
            raise permission_denied()

    # ---- passwords and sessions ------------------------------------------------------------------------------------------

    async def _set_password(self, request: AuthenticatedRequest) -> Response:
        name, caller = request.name(), request.caller()
        await self._require_manager(caller, name)
        expected = revision_expected(request.http)
        wanted = await message_of(request.http, UserPassword)
        client = _client(request)
        is_guess = not wanted.force or caller == name
        if is_guess:
            self._handler.bound.begin(client, name)
        found = await self._run(
            self._accounts.set_password,
            caller,
            name,
            old=wanted.old_password,
            new=wanted.new_password,
            force=wanted.force,
            expected_revision=expected,
        )
        if is_guess:
            self._handler.bound.succeeded(client, name)
        if request.session is not None and caller == name:
            # Why: everybody else who is logged in as this user is not, from now on.
            self._handler.sessions.renew(request.session, found.record)
        return text_answer(f"Password changed for user {quoted(name)}", headers=etag(found.revision))

    async def _operate(self, request: AuthenticatedRequest, operation: str) -> Response:
        if operation == "login":
            return await self._login(request)
        if operation == "logout":
            return self._logout(request)
        raise invalid(f"invalid user operation requested (?op={operation}) for user {quoted(request.name())}")

    async def _login(self, request: AuthenticatedRequest) -> Response:
        if request.session is not None:
            raise invalid("session already has a logged in user")
        name, client = request.name(), _client(request)
        password = await request.http.body()
        self._handler.bound.begin(client, name)
        found = await self._run(self._accounts.find, name)
        may_enter = found is not None and found.record.enabled
        # Why: an unknown and a disabled user cost as much as a wrong password, and are told the same.
        known = found.record.password_hash if found is not None and may_enter else None
        is_right = await self._run(is_password, password, known)
        if found is None or not is_right:
            raise RefusedError(403, _FAILED)
        session = self._handler.sessions.open(found)
        self._handler.bound.succeeded(client, name)
        response = text_answer(f"User {quoted(name)} logged in\n")
        self._handler.give_cookie(request.http, response, session)
        return response

    def _logout(self, request: AuthenticatedRequest) -> Response:
        name, session = request.name(), request.session
        if session is None or session.user != name:
            raise invalid(f"user {quoted(name)} not logged into this session")
        self._handler.sessions.close(session)
        response = text_answer(f"User {quoted(name)} logged out\n")
        self._handler.take_cookie(response)
        return response


def _named(name: str) -> str:
    """Return the name of a user, when it can be one: a letter, then letters and digits. Raises RefusedError (404)."""
    if not _NAME.fullmatch(name):
        raise no_such_page()
    return name


def _client(request: AuthenticatedRequest) -> str:
    client = request.http.client
    return "" if client is None else client.host


def _shown(user: User) -> UserPublic:
    return UserPublic(enabled=user.enabled, rights=rights_of(user), never_delete=user.never_delete)
