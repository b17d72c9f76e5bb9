"""Settings, declared once: a class whose fields say what each is called, where it comes from, what it may be, and its purpose.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class GatewaySettings:
        history: Annotated[int, Setting("how many events are kept", least=100)] = 1_000
        mode: Annotated[Literal["fast", "safe"], Setting("how they are written", variable="GATEWAY_MODE")] = "safe"

    read_settings(GatewaySettings, of_options(given), of_environment(os.environ))

Whoever holds texts (options, variables, a file's keys) is a Source; of several, the first that has a setting counts, and the
field's default where none has. A text is read by the field's type. The table of a reference page is made of the same class, and
`keyplan.cli.spread` makes a command's options of it.
"""

import dataclasses
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from keyplan.errors import InvalidInputError

__all__ = [
    "DeclaredSetting",
    "FoundText",
    "Setting",
    "Source",
    "TextForm",
    "declared_settings",
    "of_environment",
    "of_options",
    "of_service",
    "one_of",
    "read_settings",
    "settings_table",
    "shown_default",
]

S = TypeVar("S")

_WHOLE_MAX: Final = 2**31 - 1
_WHOLE: Final = re.compile(r"[0-9]{1,10}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TRUTHS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


class TextForm(NamedTuple):
    """How a text becomes a value. `read` raises ValueError, whose words go on after the setting's name: "must be even".

    `allowed` is what a table says of it.
    """

    read: Callable[[str], Any]
    allowed: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What is declared of a setting beside its type and its default, for `Annotated`. Its sentence has no full stop.

    `name` is what files and services call it, by default the field's with dashes; `variable` and `option` are its environment
    variable and its flag, where it has them. `least` and `most` bound a number, and `least` the characters of a text.
    """

    sentence: str
    name: str = ""
    variable: str = ""
    option: str = ""
    least: float | None = None
    most: float | None = None
    form: TextForm | None = None
    default: str = ""
    """What a table shows in place of the field's default."""
    is_secret: bool = False


class DeclaredSetting(NamedTuple):
    """A setting as its class declares it: the field, its default, and the form of its texts."""

    field: str
    name: str
    type: Any
    default: Any
    form: TextForm
    setting: Setting


class FoundText(NamedTuple):
    """A setting's text where it was found; `refuse` makes the error that names that place of words like "must be even"."""

    text: str
    refuse: Callable[[str], Exception]


Source = Callable[[DeclaredSetting], FoundText | None]
"""Where settings are given: returns what it has for one, or None."""


# ---- declaring ---------------------------------------------------------------------------------------------------------


def declared_settings(kind: type) -> tuple[DeclaredSetting, ...]:
    """Return the settings of a class, in order. A field without a Setting is none."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_declared(kind, hints))


def _declared(kind: type, hints: Mapping[str, Any]) -> Iterator[DeclaredSetting]:
    for field in dataclasses.fields(kind):
        hint, *notes = (
            get_args(hints[field.name]) if get_origin(hints[field.name]) is Annotated else (hints[field.name],)
        )
        setting = next((note for note in notes if isinstance(note, Setting)), None)
        if setting is not None:
            assert field.default is not dataclasses.MISSING, f"{kind.__name__}.{field.name} has no default"
            name = setting.name or field.name.replace("_", "-")
            form = setting.form or _form_of(hint, setting)
            yield DeclaredSetting(field.name, name, hint, field.default, form, setting)


def _form_of(hint: Any, setting: Setting) -> TextForm:
    if get_origin(hint) in {Union, types.UnionType}:
        (hint,) = set(get_args(hint)) - {type(None)}
    if get_origin(hint) is Literal:
        return one_of(*get_args(hint))
    if hint is bool:
        return TextForm(_truth, "`true` or `false`")
    if hint is int:
        return _whole_number(
            least=int(setting.least or 0), most=_WHOLE_MAX if setting.most is None else int(setting.most)
        )
    if hint is float:
        return _number(setting.least or 0.0, float("inf") if setting.most is None else setting.most)
    assert hint is str, f"a setting of the type {hint} needs a form"
    return _text(int(setting.least or 0))


def _whole_number(*, least: int, most: int) -> TextForm:
    """Return the form of whole numbers, in decimal digits."""

    def read(text: str) -> int:
        text = text.strip()
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"must be a whole number from {least} to {most}")
        number = int(text)
        if not least <= number <= most:
            raise ValueError(f"is {number}; it must be from {least} to {most}")
        return number

    return TextForm(read, f"{least} to {most}" if most < _WHOLE_MAX else f"{least} or more" if least else "a number")


def _number(least: float, most: float) -> TextForm:
    bounds = f"from {least:g} to {most:g}" if most < float("inf") else f"of {least:g} or more"

    def read(text: str) -> float:
        text = text.strip()
        # Why not all that Python reads: in 1_000 somebody may have meant a comma.
        number = float(text) if _DECIMAL.fullmatch(text) else float("nan")
        if not (least <= number <= most and number < float("inf")):
            raise ValueError(f"must be a number {bounds}")
        return number

    return TextForm(read, bounds.removeprefix("from ").removeprefix("of "))


def one_of(*words: str) -> TextForm:
    """Return the form of a few words, in any case."""

    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text.lower()

    return TextForm(read, ", ".join(f"`{word}`" for word in words))


def _truth(text: str) -> bool:
    truth = _TRUTHS.get(text.strip().lower())
    if truth is None:
        raise ValueError("must be true or false")
    return truth


def _text(least: int) -> TextForm:
    def read(text: str) -> str:
        if len(text) < least:
            raise ValueError(f"must contain at least {least} character{'s' * (least > 1)}")
        return text

    return TextForm(read)


# ---- reading -----------------------------------------------------------------------------------------------------------


def read_settings(kind: type[S], *sources: Source, is_lenient: bool = False, **others: Any) -> S:
    """Return a `kind`, each setting as the first source says that has it; `others` are the fields that are no settings.

    Raises what the source's `refuse` makes, InvalidInputError as a rule, for a text that cannot be read. When `is_lenient`,
    that text is passed over, and the default stands.
    """
    found: dict[str, Any] = {}
    for declared in declared_settings(kind):
        text = next(filter(None, (source(declared) for source in sources)), None)
        if text is None:
            continue
        try:
            found[declared.field] = declared.form.read(text.text)
        except ValueError as error:
            if not is_lenient:
                raise text.refuse(str(error)) from error
    return kind(**found, **others)


def _found(text: str | None, place: str) -> FoundText | None:
    if text is None:
        return None
    return FoundText(text, lambda problem: InvalidInputError(source=place, problem=f"it {problem}"))


def of_environment(environment: Mapping[str, str]) -> Source:
    """Return the source of environment variables. One counts even if it is empty."""

    def find(declared: DeclaredSetting) -> FoundText | None:
        variable = declared.setting.variable
        return _found(environment.get(variable), variable) if variable else None

    return find


def of_options(given: Mapping[str, str | None]) -> Source:
    """Return the source of a command's options: texts by the fields' names, None or absent where they are not given."""
    return lambda declared: _found(given.get(declared.field), declared.setting.option or declared.name)


def of_service(settings: Mapping[str, str], service: str) -> Source:
    """Return the source of what `keyplan serve --setting SERVICE.NAME=TEXT` says, as a service is given it."""
    return lambda declared: _found(settings.get(declared.name), f"--setting {service}.{declared.name}")


# ---- telling -----------------------------------------------------------------------------------------------------------


def settings_table(kind: type, prefix: str = "") -> list[str]:
    """Return the lines of a Markdown table of a class's settings; `prefix` stands before each name."""
    settings = declared_settings(kind)
    has_options = any(declared.setting.option for declared in settings)
    has_variables = any(declared.setting.variable for declared in settings)
    head = ["Flag" if has_options else "Setting", *(["Variable"] * has_variables), "Means", "May be", "By default"]
    if has_variables and not any(declared.setting.option or declared.setting.name for declared in settings):
        head = head[1:]
    return [
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
        *(_row(declared, head, prefix) for declared in settings),
    ]


def _row(declared: DeclaredSetting, head: list[str], prefix: str) -> str:
    setting = declared.setting
    cells = {
        "Flag": f"`{setting.option}`" if setting.option else "",
        "Setting": "" if setting.variable and not setting.name else f"`{prefix}{declared.name}`",
        "Variable": f"`{setting.variable}`" if setting.variable else "",
        "Means": setting.sentence,
        "May be": declared.form.allowed,
        "By default": _marked_default(declared),
    }
    return f"| {' | '.join(cells[name] for name in head)} |".replace("|  |", "| |").replace("|  |", "| |")


def _marked_default(declared: DeclaredSetting) -> str:
    shown = shown_default(declared)
    is_literal = isinstance(declared.default, str | bool) and shown in {declared.default, str(declared.default).lower()}
    return f"`{shown}`" if is_literal else shown


def shown_default(declared: DeclaredSetting) -> str:
    """Return what a page says of a setting's default."""
    default, told = declared.default, declared.setting.default
    if told or declared.setting.is_secret:
        return told or "a secret"
    if default is None or default == "":
        return "none"
    if isinstance(default, bool):
        return "true" if default else "false"
    return f"{default:g}" if isinstance(default, float) else str(default)
