"""Nothing in keyplan reveals a secret but the places that are named here, each with its reason."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import keyplan

SOURCE: Final = Path(keyplan.__file__).parent

_LOG_IN: Final = "a log-in compares hashes"
_PROGRAM: Final = "a program of ours logs in to another, or configures it"

REASONS: Final = {
    # What shows secrets to somebody: each is asked for by name, and noted where a server does it.
    "cli/read.py": "`keyplan get --reveal`",
    "server/explorer/keys.py": "the explorer's operation revealRecord, which discloses",
    "apps/patroni/broker_bindings.py": "a platform is given its binding: bind, a change, and getBinding, which discloses",
    # What knows how.
    "codec/secrets.py": "what a secret is",
    "layout/plain.py": "records as JSON values, with `reveals`",
    "protobuf/json_form.py": "what is stored",
    "codec/value_schema.py": "a default that is empty is described",
    "codec/values.py": "what is stored",
    "cli/items.py": "the option --reveal",
    # What needs the value, and shows it to nobody.
    "maintenance/hand_repair.py": "what was set aside is put back",
    "cli/write.py": "the bytes of what was set aside are counted, and printed with --reveal",
    "apps/cloudchamber/accounts.py": _LOG_IN,
    "apps/cloudchamber/rest_users.py": _LOG_IN,
    "apps/cloudchamber/sessions.py": "a session ends with the password that it was made with",
    "apps/patroni/adoption.py": "an empty password is refused",
    "apps/patroni/records.py": "a copy as a secret",
    "apps/patroni/principals.py": "tokens of clusters become sums",
    **dict.fromkeys(
        (
            "apps/patroni/backups/archive.py",
            "apps/patroni/backups/log_switch.py",
            "apps/patroni/backups/node_files.py",
            "apps/patroni/cell_agent.py",
            "apps/patroni/cluster_login.py",
            "apps/patroni/login_roles.py",
            "apps/patroni/node_config.py",
            "apps/patroni/patroni_rest.py",
            "apps/patroni/postgresql_roles.py",
        ),
        _PROGRAM,
    ),
}


def _reveals(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "reveal":
            yield node.lineno
        if isinstance(node, ast.keyword) and node.arg == "reveals":
            yield node.value.lineno
        if isinstance(node, ast.Name) and node.id == "REVEALED":
            yield node.lineno


def test_secrets_are_revealed_where_it_is_said_and_nowhere_else() -> None:
    found = {}
    for path in SOURCE.rglob("*.py"):
        lines = list(_reveals(ast.parse(path.read_text())))
        if lines:
            found[str(path.relative_to(SOURCE))] = lines
    unnamed = {name: lines for name, lines in found.items() if name not in REASONS}
    assert not unnamed, "say why, here, or leave the secret masked"
    assert set(REASONS) == set(found), "a place that reveals nothing any more needs no reason"
