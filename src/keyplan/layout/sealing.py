"""The secrets of one table: sealed when a record is written, opened when somebody reveals one.

Reading opens nothing and needs no keys. A record that is written brings secrets in clear and sealed ones that it was read with:
those that go back to their place stay as they are, all others are sealed for the place where they come to stand. Without keys
what is clear stays clear, and a sealed secret goes nowhere but back to its place.
"""

from functools import cached_property
from typing import Any, Final

from keyplan.codec import (
    CarriedSecrets,
    Envelope,
    SecretCipher,
    SecretPlace,
    SecretSyntax,
    ValueForm,
    Way,
    change_secrets,
    decoded_from,
    envelope_in,
    has_exact_paths,
    is_null,
    marked,
    secrets_in,
    shown_path,
)
from keyplan.errors import CorruptionError, LayoutError, SecretKeyError
from keyplan.layout.compile import CompiledKeys

__all__ = ["TableSeal"]

_REMEDY: Final = "open the store with secrets=, or the command with --secrets"


class TableSeal:
    """How the secrets of a table are stored. `cipher` has the keys; without one, secrets are written in clear.

    `layout` is the name under which its layout seals. A table that is not `is_sealed` never has sealed secrets: other programs
    write its records, and one of them that looks sealed is damaged, so that nobody meets it where it is revealed.
    """

    def __init__(
        self,
        layout: str,
        table: str,
        keys: CompiledKeys,
        form: ValueForm[Any],
        cipher: SecretCipher | None,
        *,
        is_sealed: bool = True,
    ) -> None:
        self.layout = layout
        self.table = table
        self.keys = keys
        self.form = form
        self.cipher = cipher if is_sealed else None
        self.is_sealed = is_sealed

    @cached_property
    def syntax(self) -> SecretSyntax:
        """How the form spells secrets. Raises LayoutError where they cannot be sealed."""
        syntax = self.form.secret_syntax
        if syntax is None:
            problem = "secrets in values of this form cannot be sealed: declare them in JSON or msgpack"
            raise LayoutError(problem=problem, table=self.table, form=self.form.code)
        return syntax

    def decode(self, raw_key: bytes, raw_value: bytes) -> object:
        """Return the record; its sealed secrets can be revealed as far as the keys are here. Raises CorruptionError."""
        stored = _StoredRecord(self, raw_key, raw_value)
        record = decoded_from(stored, self.form.decode, raw_value)
        if stored.has_sealed and not self.is_sealed:
            raise CorruptionError(problem="a secret is sealed in a table whose secrets never are", table=self.table)
        return record

    def encode(self, key: object, record: object) -> bytes:
        """Return what is stored of a record at a key.

        Raises InvalidRecordError; LayoutError for a form in which secrets cannot be sealed; for a sealed secret that comes from
        another place and does not open, SecretKeyError or CorruptionError.
        """
        carried = CarriedSecrets()
        raw_value = carried.encoded(self.form.encode, record)
        if self.cipher is None and not carried.by_envelope:
            return raw_value
        if self.cipher is not None:
            self.check()
        if not self.is_sealed:
            carried.opened = frozenset(carried.by_envelope)
            return carried.encoded(self.form.encode, record)
        # Why asked first: hardly any record brings a sealed secret, and to look for it is to read the value once more.
        moved = self._moved(key, raw_value, carried) if carried.by_envelope else frozenset()
        if moved:
            if self.cipher is None:
                raise self._needs_keys()
            carried.opened = moved
            raw_value = carried.encoded(self.form.encode, record)
        return self.sealed(key, raw_value)

    def sealed(self, key: object, raw_value: bytes) -> bytes:
        """Return the stored value with every secret in clear sealed for its place; without keys as it is."""
        cipher = self.cipher
        if cipher is None:
            return raw_value

        def seal(way: Way, raw: bytes) -> bytes:
            if is_null(self.syntax, raw) or envelope_in(self.syntax, raw) is not None:
                return raw
            return marked(self.syntax, Envelope.of(cipher, raw, self.place(key, way)).text)

        return change_secrets(self.syntax, raw_value, self.form.secrets, seal)

    def resealed(self, key: object, raw_value: bytes, new_key: object) -> bytes:
        """Return the stored value of a record at `key`, as it is stored at `new_key` now: by the current key of the keys.

        Everything else stays byte for byte. Raises SecretKeyError, CorruptionError for a secret that does not open.
        """
        cipher = self.cipher
        if cipher is not None:
            self.check()
        elif self.form.secret_syntax is None:
            return raw_value

        def reseal(way: Way, raw: bytes) -> bytes:
            if is_null(self.syntax, raw):
                return raw
            text, old, new = envelope_in(self.syntax, raw), self.place(key, way), self.place(new_key, way)
            if cipher is None:
                if text is not None and old != new:
                    raise self._needs_keys()
                return raw
            if text is not None and old == new and Envelope.read(text).key_id == cipher.current:
                return raw
            clear = raw if text is None else self.opened(text, old)
            return marked(self.syntax, Envelope.of(cipher, clear, new).text)

        return change_secrets(self.syntax, raw_value, self.form.secrets, reseal)

    def cleared(self, key: object, raw_value: bytes) -> bytes:
        """Return the stored value of a record at `key` with its sealed secrets in clear; everything else byte for byte.

        Raises SecretKeyError, CorruptionError for a secret that does not open.
        """

        def clear(way: Way, raw: bytes) -> bytes:
            text = None if is_null(self.syntax, raw) else envelope_in(self.syntax, raw)
            return raw if text is None else self.opened(text, self.place(key, way))

        return change_secrets(self.syntax, raw_value, self.form.secrets, clear)

    def check(self) -> None:
        """Raise LayoutError where the secrets of the table cannot be sealed."""
        if not self._is_exact:
            problem = "a secret stands where a clear field of another member of a union stands: give one another name"
            raise LayoutError(problem=problem, table=self.table)

    def place(self, key: object, way: Way) -> SecretPlace:
        """Return where the secret at `way` of the record at `key` stands."""
        fields = zip(self.keys.template.fields, self.keys.shape.split(key), strict=True)
        return SecretPlace(self.layout, self.table, way, tuple(field.element.encode(value) for field, value in fields))

    def sealed_places(self, key: object, raw_value: bytes) -> dict[str, set[SecretPlace]]:
        """Return where sealed secrets stand in the record at a key, by their envelopes. Raises CorruptionError."""
        found: dict[str, set[SecretPlace]] = {}
        if self.form.secret_syntax is not None:
            for way, raw in secrets_in(self.syntax, raw_value, self.form.secrets):
                text = envelope_in(self.syntax, raw)
                if text is not None:
                    found.setdefault(text, set()).add(self.place(key, way))
        return found

    def opened(self, envelope: str, place: SecretPlace) -> bytes:
        """Return what was sealed. Raises SecretKeyError and CorruptionError with the place."""
        try:
            read = Envelope.read(envelope)
            if self.cipher is None:
                problem = "the store was opened without keys"
                raise SecretKeyError(problem=problem, key_id=read.key_id, remedy=_REMEDY)
            return read.opened(self.cipher, place)
        except (CorruptionError, SecretKeyError) as error:
            error.facts |= {"table": self.table, "field": shown_path(place.way)}
            raise

    def _moved(self, key: object, raw_value: bytes, carried: CarriedSecrets) -> frozenset[str]:
        """The envelopes of sealed secrets that a record brings from elsewhere."""
        return frozenset(
            text
            for text, places in self.sealed_places(key, raw_value).items()
            if text in carried.by_envelope and not self._is_at_home(carried.by_envelope[text].origin, text, places)
        )

    def _is_at_home(self, origin: object, envelope: str, places: set[SecretPlace]) -> bool:
        """Tell whether a sealed secret was sealed for where it is to stand: it was read there, or it opens there."""
        if len(places) != 1:
            return False
        if isinstance(origin, _StoredRecord):
            return origin.places(envelope) == places
        if self.cipher is None:
            return False
        try:
            self.opened(envelope, *places)
        except CorruptionError:
            return False
        return True

    @cached_property
    def _is_exact(self) -> bool:
        return self.syntax is SecretSyntax.WHOLE or has_exact_paths(self.form.value_type)

    def _needs_keys(self) -> SecretKeyError:
        problem = "a sealed secret is to be written in another place"
        return SecretKeyError(problem=problem, table=self.table, remedy=_REMEDY)


class _StoredRecord:
    """A record as it was read: where its sealed secrets stand, and how they are opened."""

    def __init__(self, seal: TableSeal, raw_key: bytes, raw_value: bytes) -> None:
        self._seal = seal
        self._raw_key = raw_key
        self._raw_value = raw_value
        self.has_sealed = False

    @property
    def syntax(self) -> SecretSyntax:
        return self._seal.syntax

    def places(self, envelope: str) -> set[SecretPlace]:
        """Return where the envelope stands."""
        key = self._seal.keys.decode(self._raw_key)
        return self._seal.sealed_places(key, self._raw_value).get(envelope, set())

    def open(self, envelope: str) -> bytes:
        try:
            places = self.places(envelope)
            if len(places) != 1:
                # Why: of two equal envelopes one is a copy, and a secret does not know which of them it was read from.
                problem = "one sealed secret stands in several places of the record" if places else "it stands nowhere"
                raise CorruptionError(problem=problem, table=self._seal.table)
            return self._seal.opened(envelope, places.pop())
        except (CorruptionError, SecretKeyError) as error:
            error.facts["raw_key"] = self._raw_key.hex()
            raise

    def note_sealed(self) -> None:
        self.has_sealed = True
