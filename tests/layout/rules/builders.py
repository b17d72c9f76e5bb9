"""Layouts as data, written in one line, for tests that are about key templates only."""

from keyplan.codec import value_form_of
from keyplan.layout import (
    Component,
    CounterSpec,
    IndexSpec,
    ItemSpec,
    KeyShape,
    LayoutSpec,
    Origin,
    TableSpec,
    Template,
    Waiver,
    template_of_source,
)

SHAPE = KeyShape("test", is_scalar=False, make=lambda *fields: fields)


def text(source: str) -> Template:
    return template_of_source(source, is_text=True)


def binary(source: str) -> Template:
    """A binary template; in it \\xNN is a byte."""
    return template_of_source(source, is_text=False)


def table(name: str, template: Template, *, lease: bool = False, place: tuple[str, ...] = ()) -> TableSpec:
    form = value_form_of(str if template.is_text else bytes, is_text=template.is_text)
    return TableSpec(name, template, SHAPE, form, has_lease=lease, place=place)


def index(name: str, template: Template, of: str, *, each: str = "", unique: bool = False) -> IndexSpec:
    """An index whose fields come from record attributes of their names; the first field is an item of `each` when given."""
    components = [Component(Origin.RECORD, field) for field in template.field_names]
    if each:
        components[0] = Component(Origin.EACH, each)
    return IndexSpec(name, template, of, unique, SHAPE, tuple(components))


def counter(name: str, template: Template) -> CounterSpec:
    return CounterSpec(name, template, start=1)


def layout(
    *items: ItemSpec,
    name: str = "Test",
    root: Template | None = None,
    waivers: tuple[Waiver, ...] = (),
    parameters: dict[str, object] | None = None,
) -> LayoutSpec:
    known_root = Template((), items[0].template.is_text) if root is None else root
    return LayoutSpec(name, known_root, items, parameters=parameters or {}, waivers=waivers)


def tables(*sources: str) -> LayoutSpec:
    """A text layout of tables named t0, t1, ... with these templates."""
    return layout(*(table(f"t{number}", text(source)) for number, source in enumerate(sources)))


def binary_tables(*sources: str) -> LayoutSpec:
    """A binary layout of tables named t0, t1, ... with these templates."""
    return layout(*(table(f"t{number}", binary(source)) for number, source in enumerate(sources)))
