"""The commands `keyplan access add|grant|withdraw|change|rotate|revoke|list|explain|check`: an access file."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from keyplan.access import (
    NEW_FILE,
    Elements,
    OnApplication,
    OnKeySpace,
    OnOperation,
    Policy,
    Principal,
    TokenSum,
    add_principal,
    change_access_file,
    change_principal,
    idle_grants,
    known_operations,
    new_token,
    problem_of,
    read_access_text,
    read_policy,
    remove_principal,
    remove_token,
    rotate_token,
    target_of,
)
from keyplan.cli.failures import end_with_findings, print_hint
from keyplan.cli.options import JsonOption, command_group
from keyplan.cli.output import deliver_output, print_answer, print_grid, print_json, print_text
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.operations import Act

__all__ = ["access_app"]

access_app: Final = command_group("Say who may do what: principals, their tokens and their grants, in an access file.")

_SUM_DIGITS: Final = 8
"""Why: they tell the tokens of one principal apart, and `revoke --token` takes them."""

FileOption = Annotated[Path, typer.Option("--access", metavar="FILE", help="The access file.", show_default=False)]
WhoArgument = Annotated[str, typer.Argument(metavar="WHO", help="The principal's name.", show_default=False)]
ActArgument = Annotated[
    Act, typer.Argument(metavar="ACT", help="read, write, administer or audit.", show_default=False)
]
WhereArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHERE",
        help="everything, keyspace:NAME, application:NAME, prefix:KEY or operation:NAME.",
        show_default=False,
    ),
]


def _list_option(name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, help=f"{text}; may be repeated.", show_default=False)


def _grant_option(act: Act) -> Any:
    return typer.Option(f"--{act}", metavar="WHERE", help=f"Grant to {act} there; may be repeated.", show_default=False)


@access_app.command("add")
def add_command(
    who: WhoArgument,
    *,
    access: FileOption,
    read: Annotated[list[str] | None, _grant_option(Act.READ)] = None,
    write: Annotated[list[str] | None, _grant_option(Act.WRITE)] = None,
    administer: Annotated[list[str] | None, _grant_option(Act.ADMINISTER)] = None,
    audit: Annotated[list[str] | None, _grant_option(Act.AUDIT)] = None,
    certificate: Annotated[
        list[str] | None,
        typer.Option("--certificate", metavar="KIND:NAME", help="Known by a TLS client certificate; may be repeated."),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="USER", help="Known as this user on a unix socket; may be repeated."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KIND:NAME", help="What it is to `keyplan runm serve`; may be repeated."),
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Make no token.")] = False,
    json: JsonOption = False,
) -> None:
    """Add a principal to an access file, which is made where there is none; make a token and print it, this once.

    WHERE is everything, keyspace:NAME, application:NAME, prefix:KEY or operation:NAME. A label is user:NAME, project:NAME,
    partition:NAME or role:NAME, and says where grants on the operations of runm count.
    """
    token = None if no_token else new_token()
    given = {Act.READ: read, Act.WRITE: write, Act.ADMINISTER: administer, Act.AUDIT: audit}

    def change(text: str) -> str:
        return add_principal(
            text,
            who,
            token=token,
            certificates=certificate or (),
            users=_users(user),
            labels=label or (),
            grants={act: words or () for act, words in given.items()},
            source=str(access),
        )

    _change_with_token(who, token, access, change, new=NEW_FILE, json=json)
    _hint_at_idle_grants(who, access)


@access_app.command("grant")
def grant_command(who: WhoArgument, act: ActArgument, where: WhereArgument, *, access: FileOption) -> None:
    """Grant something to a principal that is there. A server knows within a second."""
    _change(who, access, added={act: [where]})
    decision = _policy(access).decide(who, act, target_of(where, source="WHERE"))
    print_hint(f"{access}: {decision.reason}")
    _hint_at_idle_grants(who, access)


@access_app.command("withdraw")
def withdraw_command(who: WhoArgument, act: ActArgument, where: WhereArgument, *, access: FileOption) -> None:
    """Take a grant of a principal back. A server knows within a second, and ends what rests on it.

    It is the grant on exactly that; where another one covers it, that one is named, and goes on to count.
    """
    _change(who, access, removed={act: [where]})
    on = target_of(where, source="WHERE")
    decision = _policy(access).decide(who, act, on)
    print_hint(f"{who} may still {act} {on}: {decision.reason}" if decision.is_allowed else decision.reason)


@access_app.command("change")
def change_command(
    who: WhoArgument,
    *,
    access: FileOption,
    add_certificate: Annotated[
        list[str] | None, _list_option("--add-certificate", "KIND:NAME", "Known by this TLS client certificate too")
    ] = None,
    remove_certificate: Annotated[
        list[str] | None, _list_option("--remove-certificate", "KIND:NAME", "Known by this certificate no more")
    ] = None,
    add_user: Annotated[
        list[str] | None, _list_option("--add-user", "USER", "Known as this user on a unix socket too")
    ] = None,
    remove_user: Annotated[
        list[str] | None, _list_option("--remove-user", "USER", "Known as this user no more")
    ] = None,
    add_label: Annotated[
        list[str] | None, _list_option("--add-label", "KIND:NAME", "This, too, to `keyplan runm serve`")
    ] = None,
    remove_label: Annotated[
        list[str] | None, _list_option("--remove-label", "KIND:NAME", "This no more to `keyplan runm serve`")
    ] = None,
) -> None:
    """Change what a principal is known by, or is to runm. Grants are for `grant` and `withdraw`, tokens for `rotate`."""
    added: Elements = {"certificates": add_certificate or (), "users": _users(add_user), "labels": add_label or ()}
    removed: Elements = {
        "certificates": remove_certificate or (),
        "users": _users(remove_user),
        "labels": remove_label or (),
    }
    if not any([*added.values(), *removed.values()]):
        raise InvalidInputError(source="change", problem="there is nothing to change: give one of its options")
    _change(who, access, added=added, removed=removed)
    print_hint(f"{who} is changed")


@access_app.command("rotate")
def rotate_command(
    who: WhoArgument,
    *,
    access: FileOption,
    keep_seconds: Annotated[
        float | None,
        typer.Option(
            "--keep-seconds", metavar="N", min=0, help="Let the old tokens count so long; by default until revoked."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make another token for a principal and print it, this once. The old ones count on, until they are revoked."""
    token = new_token()

    def change(text: str) -> str:
        return rotate_token(text, who, token, now=_now(), keep_seconds=keep_seconds, source=str(access))

    _change_with_token(who, token, access, change, json=json)


@access_app.command("revoke")
def revoke_command(
    who: WhoArgument,
    *,
    access: FileOption,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="DIGITS", help="Only this token: the first digits of its sum.", show_default=False
        ),
    ] = None,
) -> None:
    """Remove a principal with its tokens and grants, or one of its tokens alone. A server knows within a second."""

    def change(text: str) -> str:
        if token is None:
            return remove_principal(text, who, source=str(access))
        return remove_token(text, who, token, source=str(access))

    change_access_file(access, change)
    print_hint(f"{who} is removed" if token is None else f"one token of {who} is removed")


@access_app.command("list")
def list_command(*, access: FileOption, json: JsonOption = False) -> None:
    """Print the principals of an access file: what each is known by, and what is granted to it, by which line."""
    policy = _policy(access)
    if json:
        for principal in policy.principals:
            print_json(_plain(principal))
        return
    rows = (row for principal in policy.principals for row in _rows(principal))
    print_grid(("PRINCIPAL", "LINE", "", ""), rows)


@access_app.command("explain")
def explain_command(
    who: WhoArgument,
    act: ActArgument,
    where: WhereArgument,
    *,
    access: FileOption,
    application: Annotated[
        str | None,
        typer.Option("--application", "-a", metavar="NAME", help="The key space's owner.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say whether a principal may do something, and which line of the access file decides. Exit code 1: it may not."""
    policy = _policy(access)
    on = target_of(where, source="WHERE")
    if isinstance(on, OnKeySpace):
        on = OnKeySpace(on.name, application)
    decision = policy.decide(who, act, on)
    answer = "yes" if decision.is_allowed else "no"
    print_answer(
        {"is_allowed": decision.is_allowed, "line": decision.line, "reason": decision.reason},
        f"{answer}: {decision.reason}",
        json=json,
    )
    if isinstance(on, OnKeySpace) and not (decision.is_allowed or application):
        for grant in policy.grants_of(who):
            if grant.act is act and isinstance(grant.on, OnApplication):
                print_hint(
                    f"yes, if it is a key space of {grant.on.name}: line {grant.line}, --application {grant.on.name}"
                )
    if isinstance(on, OnOperation) and (problem := problem_of(act, on, known_operations())):
        print_hint(problem)
    end_with_findings(not decision.is_allowed)


@access_app.command("check")
def check_command(*, access: FileOption, json: JsonOption = False) -> None:
    """Look for grants that let nobody do anything: on operations that there are not, or that need another act or target.

    So are names with a star, which nothing can have. What is wrong with the file itself is refused, as a server does. Exit
    code 1 when there is such a grant.
    """
    found = list(idle_grants(_policy(access)))
    for principal, grant, problem in found:
        facts = {"line": grant.line, "principal": principal, "act": grant.act, "on": str(grant.on), "problem": problem}
        print_answer(facts, f"{access}:{grant.line}: {principal}: {problem}", json=json)
    if not (found or json):
        print_text("every grant is one that something may ask for")
    end_with_findings(bool(found))


# ---- what they share -------------------------------------------------------------------------------------------------


def _change(who: str, access: Path, *, added: Elements | None = None, removed: Elements | None = None) -> None:
    change_access_file(
        access, lambda text: change_principal(text, who, added=added, removed=removed, source=str(access))
    )


def _users(given: Sequence[str] | None) -> list[int | str]:
    return [int(one) if one.isdecimal() else one for one in given or ()]


def _hint_at_idle_grants(who: str, access: Path) -> None:
    for found in idle_grants(_policy(access)):
        if found.principal == who:
            print_hint(f"{access}:{found.grant.line}: {found.problem}")


def _policy(path: Path) -> Policy:
    return read_policy(read_access_text(path), source=str(path))


def _now() -> datetime:
    return datetime.fromtimestamp(SYSTEM_CLOCK.wall(), UTC)


def _change_with_token(
    who: str, token: str | None, path: Path, change: Callable[[str], str], *, json: bool, new: str | None = None
) -> None:
    """Change an access file so that it has the sum of a new token, which is shown before.

    Invariant: whatever ends the command in between, the file is as it was, or somebody was shown what it has now.
    """
    if token is None:
        change_access_file(path, change, new=new)
        print_hint(f"{who} is in {path}, without a token")
        return
    is_shown = False

    def change_when_shown(text: str) -> str:
        nonlocal is_shown
        changed = change(text)  # Why first: what is refused has shown no token.
        print_answer({"principal": who, "token": token}, token, json=json)
        try:
            deliver_output()
        except OSError:
            print_hint(f"the token of {who} cannot be shown: {path} is as it was; give an output that can be written")
            raise
        is_shown = True
        return changed

    try:
        change_access_file(path, change_when_shown, new=new)
    except BaseException:
        if is_shown and not _is_known(token, path):
            print_hint(f"the token that was shown does not count: {path} is as it was; run the command again")
        raise
    print_hint(f"this is the token of {who}; it is shown this once, and {path} has its sum")


def _is_known(token: str, path: Path) -> bool:
    try:
        return _policy(path).known_by_token(token, at=_now()) is not None
    except InvalidInputError:
        return False


def _rows(principal: Principal) -> Iterator[tuple[str, str, str, str]]:
    name, line = principal.name, str(principal.line)
    yield from ((name, line, "token", _words_of(token)) for token in principal.tokens)
    yield from ((name, line, "certificate", one) for one in principal.certificates)
    yield from ((name, line, "user", str(one)) for one in principal.users)
    yield from ((name, line, "label", str(one)) for one in principal.labels)
    yield from ((name, str(grant.line), str(grant.act), str(grant.on)) for grant in principal.grants)
    if not (principal.tokens or principal.certificates or principal.users or principal.labels or principal.grants):
        yield name, line, "", ""


def _words_of(token: TokenSum) -> str:
    digits = token.digest.hex()[:_SUM_DIGITS]
    if token.until is None:
        return digits
    return f"{digits} {'until' if _now() < token.until else 'ended'} {token.until.isoformat()}"


def _plain(principal: Principal) -> dict[str, Any]:
    return {
        "principal": principal.name,
        "line": principal.line,
        "tokens": [
            {"sum": token.digest.hex()[:_SUM_DIGITS], "until": token.until.isoformat() if token.until else None}
            for token in principal.tokens
        ],
        "certificates": [*principal.certificates],
        "users": [*principal.users],
        "labels": [str(one) for one in principal.labels],
        "grants": [{"act": str(act), "on": str(on), "line": line} for act, on, line in principal.grants],
    }
