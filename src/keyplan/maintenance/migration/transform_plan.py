"""Whether transforms can be carried out between two layouts, and their way from table to table."""

from collections.abc import Collection, Iterator, Sequence

from keyplan.layout import BoundLayout, LayoutPairs, Template, key_below, plain_shape, shown_key
from keyplan.maintenance.migration.functions import Transform
from keyplan.maintenance.migration.transformer import Transformer

__all__ = ["bound_transforms", "refused_transforms"]


def bound_transforms(
    transforms: Sequence[Transform], old: BoundLayout, new: BoundLayout, kept_indexes: Collection[str]
) -> list[Transformer]:
    """Return the transforms bound to the tables of both layouts; `refused_transforms` has nothing against them."""
    return [Transformer(transform, old, new, kept_indexes) for transform in transforms]


def refused_transforms(
    transforms: Sequence[Transform],
    old: BoundLayout,
    new: BoundLayout,
    pairs: LayoutPairs,
    roots: tuple[Template, Template],
) -> Iterator[str]:
    """Yield what keeps the transforms from being carried out, in words."""
    given: dict[str, Transform] = {}
    for transform in transforms:
        for name in transform.of:
            if given.setdefault(name, transform) is not transform:
                yield f"{name}: two transforms are given for it, {given[name]} and {transform}: give one"
        unknown = [name for name in transform.of if name not in old.tables]
        unknown += [name for name in transform.into if name not in new.tables]
        if unknown or not transform.of or not transform.into:
            named = ", ".join(unknown) or "nothing"
            yield f"{transform}: it names {named}, which is no table: `of` are old tables, `into` new ones"
            continue
        if len(set(transform.of)) < len(transform.of):
            yield f"{transform}: it names a table twice in `of`: name each once"
            continue
        yield from _refused_keys(transform, old)
        yield from _refused_places(transform, old, new, pairs, roots)


def _refused_keys(transform: Transform, old: BoundLayout) -> Iterator[str]:
    """Whether the records of several tables can be found by one key."""
    first = old.tables[transform.of[0]]
    elements = {field.name: field.element.spec for field in first.keys.template.fields}
    for name in transform.of[1:]:
        template = old.tables[name].keys.template
        if {field.name: field.element.spec for field in template.fields} != elements:
            problem = f"its key fields are not those of {first.name}, {', '.join(elements) or 'none'}, spelled alike"
            yield f"{name}: {problem}: join only tables whose keys have the same fields"


def _refused_places(
    transform: Transform, old: BoundLayout, new: BoundLayout, pairs: LayoutPairs, roots: tuple[Template, Template]
) -> Iterator[str]:
    """Whether old and new records can stand beside one another."""
    olds = {name: old.tables[name].spec.template.prefixed(roots[0]) for name in transform.of}
    for name, template in olds.items():
        stays = [
            item.name
            for item in pairs.new.items
            if plain_shape(item.template.prefixed(roots[1])) == plain_shape(template)
        ]
        if stays:
            problem = f"the new layout has {', '.join(stays)} at just these keys, and its records would be removed"
            yield f"{name}: {problem}: give the new table another template"
            continue
        for target in transform.into:
            answer = key_below(new.tables[target].spec.template.prefixed(roots[1]), None, template)
            if answer.key is not None or answer.is_open:
                shown = "perhaps" if answer.key is None else shown_key(answer.key)
                problem = (
                    f"a key of {target} can be one of {name} ({shown}): old and new records could not be told apart"
                )
                yield f"{target}: {problem}: give it another template"
