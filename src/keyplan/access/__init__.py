"""Who may do what: principals, grants, targets, and the access file that they stand in.

It knows no engine and no server: who serves a request asks the policy, and confines what it hands out to what that says.
"""

from keyplan.access.changes import PrincipalChange, changes_between
from keyplan.access.editing import (
    NEW_FILE,
    Elements,
    add_principal,
    change_principal,
    new_token,
    remove_principal,
    remove_token,
    rotate_token,
)
from keyplan.access.file import ACCESS_BYTES_MAX, LOOK_SECONDS, AccessFile, change_access_file, read_access_text
from keyplan.access.known import OPERATIONS_GROUP, IdleGrant, idle_grants, known_operations, problem_of
from keyplan.access.labels import ANY, LABEL_KINDS, Label, label_of
from keyplan.access.policy import (
    SUMS_OF_NOTHING,
    TOKEN_CHARACTERS_MIN,
    Decision,
    Grant,
    Policy,
    Principal,
    TokenSum,
    sum_of_token,
)
from keyplan.access.reading import CERTIFICATE_KINDS, read_policy
from keyplan.access.targets import (
    EVERYTHING,
    Everything,
    OnApplication,
    OnKeySpace,
    OnOperation,
    OnPrefix,
    Target,
    target_of,
)

__all__ = [
    "ACCESS_BYTES_MAX",
    "ANY",
    "CERTIFICATE_KINDS",
    "EVERYTHING",
    "LABEL_KINDS",
    "LOOK_SECONDS",
    "NEW_FILE",
    "OPERATIONS_GROUP",
    "SUMS_OF_NOTHING",
    "TOKEN_CHARACTERS_MIN",
    "AccessFile",
    "Decision",
    "Elements",
    "Everything",
    "Grant",
    "IdleGrant",
    "Label",
    "OnApplication",
    "OnKeySpace",
    "OnOperation",
    "OnPrefix",
    "Policy",
    "Principal",
    "PrincipalChange",
    "Target",
    "TokenSum",
    "add_principal",
    "change_access_file",
    "change_principal",
    "changes_between",
    "idle_grants",
    "known_operations",
    "label_of",
    "new_token",
    "problem_of",
    "read_access_text",
    "read_policy",
    "remove_principal",
    "remove_token",
    "rotate_token",
    "sum_of_token",
    "target_of",
]
