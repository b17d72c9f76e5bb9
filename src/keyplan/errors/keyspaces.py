"""The errors of the key space registry and of opened key spaces. Codes and statuses are those of its HTTP contract.

KeySpaceError                     http_status
├── InvalidArgumentError            an argument is missing or of the wrong kind               400
│   ├── InvalidNameError              not a name that a key space can have
│   └── InvalidPrefixError            not a prefix that a key space can have
├── ForbiddenError                  for administrators                                        403
│   └── SelfRegistrationDisabledError   applications may not make key spaces here
├── KeySpaceNotFoundError           no key space of this name                                 404
├── KeySpaceConflictError           the registry is not as assumed                            409
│   ├── KeySpaceExistsError           the name is taken
│   ├── KeySpaceDisabledError         disabled: no opens, no writes
│   ├── KeySpaceDeletingError         its deletion has begun
│   ├── KeySpaceDeletedError          it was deleted
│   ├── KeySpaceRestoringError        a restore has not ended
│   ├── KeySpaceProtectedError        it may not be deleted
│   ├── OwnerConflictError            the name belongs to another application
│   ├── OwnerMismatchError            opened by another application: for reading only
│   ├── PrefixInUseError              another key space has this prefix
│   ├── PrefixConflictError           one prefix is the beginning of the other
│   ├── PrefixNotEmptyError           keys of nobody lie below the prefix
│   ├── PrefixMismatchError           the registered prefix is not the default prefix
│   ├── IllegalTransitionError        no such move from this state
│   ├── GenerationMismatchError       another key space has the name now
│   └── RegistryMismatchError         the registry is another store's
├── ImmutableFieldError             only the description can be changed                       422
├── KeySpaceApiDisabledError        the registry is not open to applications                  501
├── KeySpaceApiUnavailableError     a registry is required, and there is none                 501
├── PrefixExhaustedError            no prefix is left                                         507
├── QuotaExceededError              the key space is full                                     507
└── KeyOutOfKeySpaceError           a key came back that is not of the key space              500

The statuses stand here, because the codes and they are one table of the contract; nothing else in keyplan speaks HTTP.
"""

from keyplan.errors.tree import ConflictError, CorruptionError, KeyplanError, NotFoundError, RecordError

__all__ = [
    "ForbiddenError",
    "GenerationMismatchError",
    "IllegalTransitionError",
    "ImmutableFieldError",
    "InvalidArgumentError",
    "InvalidNameError",
    "InvalidPrefixError",
    "KeyOutOfKeySpaceError",
    "KeySpaceApiDisabledError",
    "KeySpaceApiUnavailableError",
    "KeySpaceConflictError",
    "KeySpaceDeletedError",
    "KeySpaceDeletingError",
    "KeySpaceDisabledError",
    "KeySpaceError",
    "KeySpaceExistsError",
    "KeySpaceNotFoundError",
    "KeySpaceProtectedError",
    "KeySpaceRestoringError",
    "OwnerConflictError",
    "OwnerMismatchError",
    "PrefixConflictError",
    "PrefixExhaustedError",
    "PrefixInUseError",
    "PrefixMismatchError",
    "PrefixNotEmptyError",
    "QuotaExceededError",
    "RegistryMismatchError",
    "SelfRegistrationDisabledError",
]


class KeySpaceError(KeyplanError):
    """The root of the errors about key spaces."""

    code = "keyspace"
    summary = "the key space registry could not do what was asked"
    exit_code = 10


class InvalidArgumentError(RecordError, KeySpaceError):
    """An argument is missing or of the wrong kind. Facts: `argument`, `problem`."""

    code = "invalid_argument"
    summary = "the argument is not valid"


class InvalidNameError(InvalidArgumentError):
    """Not a name that a key space can have. Facts: `name`, `problem`."""

    code = "invalid_name"
    summary = "the name of the key space is not valid"


class InvalidPrefixError(InvalidArgumentError):
    """Not a prefix that a key space can have.

    Facts: `prefix`, and `reason`: empty, reserved, not_hex, too_long, unterminated, trailing_bytes or not_canonical.
    """

    code = "invalid_prefix"
    summary = "the prefix is not valid"


class ForbiddenError(KeySpaceError):
    """Only administrators may do this. Facts: `act`."""

    code = "forbidden"
    summary = "this is for administrators"
    http_status = 403


class SelfRegistrationDisabledError(ForbiddenError):
    """Applications may not make key spaces in this registry. Facts: `name`."""

    code = "self_registration_disabled"
    summary = "applications may not make key spaces here"


class KeySpaceNotFoundError(NotFoundError, KeySpaceError):
    """There is no key space of this name. Facts: `name`."""

    code = "keyspace_not_found"
    summary = "there is no key space of this name"


class KeySpaceConflictError(ConflictError, KeySpaceError):
    """The registry, or a key space, is not in the state that the caller assumed. Nothing was written."""

    code = "keyspace_conflict"
    summary = "the key space is not as assumed"


class KeySpaceExistsError(KeySpaceConflictError):
    """The name is taken. Facts: `name`, `state`, `application`, `prefix` of the key space that has it."""

    code = "keyspace_exists"
    summary = "there is a key space of this name"


class KeySpaceDisabledError(KeySpaceConflictError):
    """The key space is disabled: no opens and no writes. Facts: `name`."""

    code = "keyspace_disabled"
    summary = "the key space is disabled"


class KeySpaceDeletingError(KeySpaceConflictError):
    """The deletion of the key space has begun. Facts: `name`."""

    code = "keyspace_deleting"
    summary = "the key space is being deleted"


class KeySpaceDeletedError(KeySpaceConflictError):
    """The key space was deleted. Facts: `name`."""

    code = "keyspace_deleted"
    summary = "the key space was deleted"


class KeySpaceRestoringError(KeySpaceConflictError):
    """A restore into the key space has not ended. Facts: `name`."""

    code = "keyspace_restoring"
    summary = "the key space is being restored"


class KeySpaceProtectedError(KeySpaceConflictError):
    """The configuration protects the key space from deletion. Facts: `name`."""

    code = "keyspace_protected"
    summary = "the key space is protected from deletion"


class OwnerConflictError(KeySpaceConflictError):
    """The name belongs to another application. Facts: `name`, `application` asked for, `owner`."""

    code = "owner_conflict"
    summary = "the key space belongs to another application"


class OwnerMismatchError(KeySpaceConflictError):
    """The key space was opened by an application that does not own it, for reading. Facts: `name`, `application`, `owner`."""

    code = "owner_mismatch"
    summary = "the key space of another application is open for reading only"


class PrefixInUseError(KeySpaceConflictError):
    """Another key space has this prefix. Facts: `prefix`, `holder` where there is one, `problem` otherwise."""

    code = "prefix_in_use"
    summary = "the prefix is in use"


class PrefixConflictError(KeySpaceConflictError):
    """One of two prefixes is the beginning of the other. Facts: `prefix`, `other`, `holder` where there is one."""

    code = "prefix_conflict"
    summary = "one prefix is the beginning of the other"


class PrefixNotEmptyError(KeySpaceConflictError):
    """There are keys below the prefix that no key space accounts for. Facts: `prefix`, `first_key` in hex."""

    code = "prefix_not_empty"
    summary = "there are keys below the prefix"


class PrefixMismatchError(KeySpaceConflictError):
    """The registered prefix is another than the application's default. Facts: `name`, `prefix`, `default_prefix`."""

    code = "prefix_mismatch"
    summary = "the registered prefix is not the default prefix"


class IllegalTransitionError(KeySpaceConflictError):
    """There is no such move from the key space's state. Facts: `name`, `state`, `asked`, `problem`."""

    code = "illegal_transition"
    summary = "the key space cannot go from its state to the one asked for"


class GenerationMismatchError(KeySpaceConflictError):
    """The name belongs to another key space than the one that was opened. Facts: `name`, `generation`, `current`."""

    code = "generation_mismatch"
    summary = "another key space has the name now"


class RegistryMismatchError(KeySpaceConflictError):
    """The registry that was asked is not the opened store's. Facts: `name`; `registry`, `store`: clusters, empty for none."""

    code = "registry_mismatch"
    summary = "the registry is that of another store; ask the one of the store that is opened"


class ImmutableFieldError(RecordError, KeySpaceError):
    """Only the description of a key space can be changed. Facts: `name`, `fields`."""

    code = "immutable_field"
    summary = "only the description of a key space can be changed"
    http_status = 422


class KeySpaceApiDisabledError(KeySpaceError):
    """The registry is not open to applications yet. Positive evidence: an application may fall back. Facts: `problem`."""

    code = "keyspace_api_disabled"
    summary = "the key space registry is not open to applications"
    http_status = 501


class KeySpaceApiUnavailableError(KeySpaceError):
    """The application requires a registry, or has no default prefix, and there is no registry. Facts: `name`, `problem`."""

    code = "keyspace_api_unavailable"
    summary = "there is no key space registry"
    http_status = 501


class PrefixExhaustedError(KeySpaceError):
    """Every prefix within the length allowed is taken. Facts: `prefix_bytes_max`."""

    code = "prefix_exhausted"
    summary = "no prefix is left"
    http_status = 507


class QuotaExceededError(KeySpaceError):
    """The key space holds as much as it may. Nothing was written. Facts: `name`, `limit`, `allowed`, `actual`."""

    code = "quota_exceeded"
    summary = "the quota of the key space is used up"
    http_status = 507


class KeyOutOfKeySpaceError(CorruptionError, KeySpaceError):
    """The engine gave a key that is not of the key space; it is not handed on. Facts: `name`, `raw_key` in hex."""

    code = "key_out_of_keyspace"
    summary = "a key outside the key space came back"
