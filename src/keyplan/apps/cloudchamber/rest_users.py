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
from keyplan.apps.cloudchamber.rest_routes import Asked, Desk, Operation, Query
from keyplan.apps.cloudchamber.sessions import COOKIE

__all__ = ["user_operations"]

_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9]*")
_RIGHTS: Final = {info.encode_name: info.name for info in msgspec.structs.fields(Rights) if info.type is bool}
"""The rights as they are spelled in JSON, and in the record."""
_FAILED: Final = "authentication failed, invalid user name or password"


def user_operations(desk: Desk) -> Sequence[Operation]:
    """Return the operations on users."""
    users = _Users(desk)
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
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._accounts = desk.accounts
        self._run = desk.context.run

    # ---- accounts --------------------------------------------------------------------------------------------------------

    async def list(self, asked: Asked) -> Response:
        caller, given = asked.caller(), asked.request.query_params.get("right")
        right = None if given is None else _RIGHTS.get(given)
        if given is not None and right is None:
            raise invalid(f"there is no right {quoted(given)}")
        found = await self._run(self._accounts.list, caller, right=right)
        path = asked.request.url.path.lower().rstrip("/")
        entries = {
            key: UserEntry(
                name=user.name or key, uri=f"{path}/{quote(user.name or key, safe='')}", protected=user.never_delete
            )
            for key, user in found.records
        }
        for key in found.damaged:
            entries[key] = UserEntry(name=key, uri=f"{path}/{quote(key, safe='')}", damaged=True)
        return message_answer(UserList(users=[entries[key] for key in sorted(entries)]))

    async def create(self, asked: Asked) -> Response:
        name = _named(asked.literal())
        caller = asked.caller()
        await self._require_manager(caller)
        wanted = await message_of(asked.request, UserDefinition)
        rights = wanted.rights or Rights()
        create = self._accounts.create
        revision = await self._run(create, caller, name, wanted.password, enabled=wanted.enabled, rights=rights)
        enabled = "true" if wanted.enabled else "false"
        text = f"User {quoted(name)} created, enabled: {enabled}, rights: {described_rights(rights)}"
        return text_answer(text, headers=etag(revision))

    async def read(self, asked: Asked) -> Response:
        name = _named(asked.name())
        found = await self._desk.context.read(self._accounts.read, asked.caller(), name)
        return message_answer(_shown(found.record), revision=found.revision)

    async def put(self, asked: Asked) -> Response:
        _named(asked.name())
        query = asked.request.query_params
        if "op" in query:
            return await self._operate(asked, query["op"])
        if "password" in query:
            return await self._set_password(asked)
        return await self._update(asked)

    async def _update(self, asked: Asked) -> Response:
        name = asked.name()
        if COOKIE not in asked.request.cookies:
            raise RefusedError(400, "http: named cookie not present", is_bare=True)
        caller = asked.caller()
        await self._require_manager(caller, name)
        expected = revision_expected(asked.request)
        wanted = await message_of(asked.request, UserUpdate)
        rights = wanted.rights or Rights()
        update = self._accounts.update
        found = await self._run(update, caller, name, enabled=wanted.enabled, rights=rights, expected_revision=expected)
        return message_answer(_shown(found.record), revision=found.revision)

    async def delete(self, asked: Asked) -> Response:
        name = _named(asked.name())
        await self._run(self._accounts.delete, asked.caller(), name)
        return text_answer(f"User {quoted(name)} deleted.")

    async def _require_manager(self, caller: str, name: str | None = None) -> None:
        """Refuse before the body is looked at, as the original does; the act itself asks again."""
        if not await self._desk.context.read(self._accounts.may_manage, caller, name):
            raise permission_denied()

    # ---- passwords and sessions ------------------------------------------------------------------------------------------

    async def _set_password(self, asked: Asked) -> Response:
        name, caller = asked.name(), asked.caller()
        await self._require_manager(caller, name)
        expected = revision_expected(asked.request)
        wanted = await message_of(asked.request, UserPassword)
        client = _client(asked)
        is_guess = not wanted.force or caller == name
        if is_guess:
            self._desk.bound.begin(client, name)
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
            self._desk.bound.succeeded(client, name)
        if asked.session is not None and caller == name:
            # Why: everybody else who is logged in as this user is not, from now on.
            self._desk.sessions.renew(asked.session, found.record)
        return text_answer(f"Password changed for user {quoted(name)}", headers=etag(found.revision))

    async def _operate(self, asked: Asked, operation: str) -> Response:
        if operation == "login":
            return await self._login(asked)
        if operation == "logout":
            return self._logout(asked)
        raise invalid(f"invalid user operation requested (?op={operation}) for user {quoted(asked.name())}")

    async def _login(self, asked: Asked) -> Response:
        if asked.session is not None:
            raise invalid("session already has a logged in user")
        name, client = asked.name(), _client(asked)
        password = await asked.request.body()
        self._desk.bound.begin(client, name)
        found = await self._run(self._accounts.find, name)
        may_enter = found is not None and found.record.enabled
        # Why: an unknown and a disabled user cost as much as a wrong password, and are told the same.
        known = found.record.password_hash if found is not None and may_enter else None
        is_right = await self._run(is_password, password, known)
        if found is None or not is_right:
            raise RefusedError(403, _FAILED)
        session = self._desk.sessions.open(found)
        self._desk.bound.succeeded(client, name)
        response = text_answer(f"User {quoted(name)} logged in\n")
        self._desk.give_cookie(asked.request, response, session)
        return response

    def _logout(self, asked: Asked) -> Response:
        name, session = asked.name(), asked.session
        if session is None or session.user != name:
            raise invalid(f"user {quoted(name)} not logged into this session")
        self._desk.sessions.close(session)
        response = text_answer(f"User {quoted(name)} logged out\n")
        self._desk.take_cookie(response)
        return response


def _named(name: str) -> str:
    """Return the name of a user, when it can be one: a letter, then letters and digits. Raises RefusedError (404)."""
    if not _NAME.fullmatch(name):
        raise no_such_page()
    return name


def _client(asked: Asked) -> str:
    client = asked.request.client
    return "" if client is None else client.host


def _shown(user: User) -> UserPublic:
    return UserPublic(enabled=user.enabled, rights=rights_of(user), never_delete=user.never_delete)
