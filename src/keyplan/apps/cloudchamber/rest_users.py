"""Users over HTTP (5.2): accounts, logins, passwords. Who may do what, accounts.py decides."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from keyplan.apps.cloudchamber.accounts import StoredUser, described_rights, is_password, rights_of
from keyplan.apps.cloudchamber.records import Rights, User
from keyplan.apps.cloudchamber.refusals import RefusedError, invalid, no_such_page, permission_denied, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    UserDefinition,
    UserEntry,
    UserList,
    UserPassword,
    UserPublic,
    UserUpdate,
)
from keyplan.apps.cloudchamber.rest_routes import DAMAGED_FACT, Resource, Who, damaged_header, etag, message_of, rest
from keyplan.apps.cloudchamber.rest_words import IfMatchWord, one_of, revision_of
from keyplan.apps.cloudchamber.service_settings import AsOriginal
from keyplan.apps.cloudchamber.sessions import COOKIE, Session
from keyplan.layout import Damaged, shown_key
from keyplan.operations import (
    ITSELF,
    NOTHING,
    Act,
    Answered,
    BodyForm,
    Change,
    In,
    Need,
    Operation,
    Place,
    Schema,
    Whole,
    WordForm,
)

__all__ = ["Users"]

_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9]*")
_NAME_CHARACTERS_MAX: Final = 255
"""Why here: ruling R10 of the layout would refuse it too, and only once the audit log has a line with the name."""
_RIGHTS: Final = {info.encode_name: info.name for info in msgspec.structs.fields(Rights) if info.type is bool}
"""The rights as they are spelled in JSON, and in the record."""
_FAILED: Final = "authentication failed, invalid user name or password"


def _named(_argument: str, name: str) -> str:
    """Return the name of a user, when it can be one: a letter, then letters and digits. Raises RefusedError (404, 400)."""
    if not _NAME.fullmatch(name):
        raise no_such_page()
    if len(name) > _NAME_CHARACTERS_MAX:
        raise invalid(f"the name of a user has at most {_NAME_CHARACTERS_MAX} characters")
    return name


_SPELLED: Final = Schema(pattern="^[A-Za-z0-9]+$")
UserName = Annotated[str, In("name", WordForm(lambda word, name: _named(word, name).lower(), str)), _SPELLED]
NewUserName = Annotated[str, In("name", WordForm(_named, str)), _SPELLED]

_ONE: Final = "/api/users/{name}"
_PUT_BODY: Final = BodyForm(
    bytes,
    lambda body: {"body": body},
    lambda fields: fields["body"],
    schema=UserUpdate,
    media={"text/plain": Annotated[str, Schema("the password of a login")]},
)


class Users(Resource):
    """The operations on users."""

    # ---- accounts --------------------------------------------------------------------------------------------------------

    @rest("GET", "/api/users", Who.USER, 400, 409, needs=Need(Act.READ, ITSELF), has_slash=True, headers=DAMAGED_FACT)
    def list(
        self,
        *,
        right: Annotated[str | None, In(form=one_of("right", _RIGHTS)), Schema("only users with this right")] = None,
    ) -> Answered[UserList]:
        """List the users, or those with a right."""
        path = self.asked.http.url.path.lower().rstrip("/")

        def uri(name: str) -> str:
            return f"{path}/{quote(name, safe='')}"

        def entry(row: StoredUser | Damaged[str]) -> UserEntry:
            if isinstance(row, Damaged):
                # Why the raw key: an index entry that is damaged itself does not say whose it is.
                name = row.key or shown_key(row.raw_key)
                return UserEntry(name=name, uri=uri(name))
            name = row.record.name or row.key
            return UserEntry(name=name, uri=uri(name), protected=row.record.never_delete)

        rows = self.web.accounts.list(self.asked.caller, right=right)
        place_of = self.web.chamber.place_of
        damaged = [place_of(shown_key(row.raw_key)) for row in rows if isinstance(row, Damaged)]
        return Answered(UserList(users=[entry(row) for row in rows]), headers=damaged_header(damaged))

    @rest("POST", _ONE, Who.ACCOUNT_MANAGER, 404, 413, change=Change("create user", "{name}"))
    def create(self, name: NewUserName, wanted: Whole[UserDefinition]) -> Answered[str]:
        """Create a user."""
        rights = wanted.rights or Rights()
        create = self.web.accounts.create
        revision = create(self.asked.caller, name, wanted.password, enabled=wanted.enabled, rights=rights)
        enabled = "true" if wanted.enabled else "false"
        text = f"User {quoted(name)} created, enabled: {enabled}, rights: {described_rights(rights)}"
        return Answered(text, headers=etag(revision))

    @rest("GET", _ONE, Who.USER, 404, needs=Need(Act.READ, ITSELF), is_quick=True)
    def read(self, name: UserName) -> Answered[UserPublic]:
        """Read a user."""
        found = self.web.accounts.read(self.asked.caller, name)
        return Answered(_shown(found.record), headers=etag(found.revision))

    @rest(
        "PUT",
        _ONE,
        Who.ANYBODY,
        404,
        409,
        413,
        429,
        needs=Need(Act.WRITE, NOTHING),
        body=_PUT_BODY,
        change=Change("put user", "{name}"),
    )
    async def put(
        self,
        name: UserName,
        body: bytes,
        *,
        op: Annotated[
            str | None,
            In(place=Place.QUERY),
            Schema("log in with the password as the body, in plain text, or log out", enum=["login", "logout"]),
        ] = None,
        password: Annotated[
            str | None, In(place=Place.QUERY), Schema("change the password: the body is a UserPassword")
        ] = None,
        match: IfMatchWord = "",
    ) -> Answered[UserPublic | str]:
        """Change what a user may do; or log in, log out, change the password."""
        if op == "login":
            return await self._login(name, body)
        if op == "logout":
            return self._logout(name)
        if password is not None:
            return await self._set_password(name, body, match)
        return await self._update(name, body, match)

    @rest("DELETE", _ONE, Who.USER, 404, needs=Need(Act.ADMINISTER, ITSELF), change=Change("delete user", "{name}"))
    def delete(self, name: UserName) -> str:
        """Delete a user."""
        self.web.accounts.delete(self.asked.caller, name)
        return f"User {quoted(name)} deleted."

    async def _update(self, name: str, body: bytes, match: str) -> Answered[Any]:
        expected = revision_of("If-Match", match)
        wanted = message_of(UserUpdate, body)
        found = await self.web.context.run(
            self.web.accounts.update,
            self.asked.caller,
            name,
            enabled=wanted.enabled,
            rights=wanted.rights or Rights(),
            expected_revision=expected,
        )
        return Answered(_shown(found.record), headers=etag(found.revision))

    async def admit_body(self, operation: Operation, arguments: Mapping[str, Any]) -> None:
        """Refuse who may not log in or out or manage the account, before the body is read; the act itself asks again.

        Why all of it here: what is let in has two lines in the audit log, and whoever asks without a log-in is to write few.
        """
        if operation.attribute != "put":
            return
        name, act = arguments["name"], arguments.get("op")
        if act == "login":
            self._check_may_log_in(name)
        elif act == "logout":
            self._session_to_end(name)
        elif act is not None:
            raise invalid(f"invalid user operation requested (?op={act}) for user {quoted(name)}")
        elif arguments.get("password") is None and COOKIE not in self.asked.http.cookies:
            raise RefusedError(400, "http: named cookie not present", is_bare=True)
        elif not await self.web.context.read(self.web.accounts.may_manage, self.asked.caller, name):
            raise permission_denied()

    def _check_may_log_in(self, name: str) -> None:
        """Count a try to log in. Raises RefusedError: for who is logged in, and when there were too many."""
        if self.asked.session is not None:
            raise invalid("session already has a logged in user")
        self.web.bound.begin(self.asked.client, name)

    def _session_to_end(self, name: str) -> Session:
        """Return the session of who wants to log out. Raises RefusedError."""
        session = self.asked.session
        if session is None or session.user != name:
            raise invalid(f"user {quoted(name)} not logged into this session")
        return session

    # ---- passwords and sessions ------------------------------------------------------------------------------------------

    async def _set_password(self, name: str, body: bytes, match: str) -> Answered[Any]:
        expected = revision_of("If-Match", match)
        wanted = message_of(UserPassword, body)
        caller, client = self.asked.caller, self.asked.client
        is_guess = not wanted.force or caller == name
        if is_guess:
            self.web.bound.begin(client, name)
        found = await self.web.context.run(
            self.web.accounts.set_password,
            caller,
            name,
            old=wanted.old_password,
            new=wanted.new_password,
            force=wanted.force,
            expected_revision=expected,
        )
        if is_guess:
            self.web.bound.succeeded(client, name)
        if self.asked.session is not None and caller == name:
            # Why: everybody else who is logged in as this user is not, from now on.
            self.web.sessions.renew(self.asked.session, found.record)
        return Answered(f"Password changed for user {quoted(name)}", headers=etag(found.revision))

    async def _login(self, name: str, password: bytes) -> Answered[Any]:
        client, run = self.asked.client, self.web.context.run
        found = await run(self.web.accounts.find, name)
        may_enter = found is not None and found.record.enabled
        # Why: an unknown and a disabled user cost as much as a wrong password, and are told the same.
        known = found.record.password_hash.reveal() if found is not None and may_enter else None
        is_right = await run(is_password, password, known)
        if found is None or not is_right:
            is_told = AsOriginal.UNKNOWN_USERS in self.web.as_original and not may_enter
            raise RefusedError(404 if is_told else 403, _FAILED)
        self.asked.opened = self.web.sessions.open(found)
        self.web.bound.succeeded(client, name)
        return Answered(f"User {quoted(name)} logged in\n")

    def _logout(self, name: str) -> Answered[Any]:
        self.web.sessions.close(self._session_to_end(name))
        self.asked.is_logged_out = True
        return Answered(f"User {quoted(name)} logged out\n")


def _shown(user: User) -> UserPublic:
    return UserPublic(enabled=user.enabled, rights=rights_of(user), never_delete=user.never_delete)
