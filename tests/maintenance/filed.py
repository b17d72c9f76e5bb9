"""Layouts that become one another by migration files, each the next of the one before."""

from typing import NamedTuple

import msgspec

from keyplan.layout import Index, Layout, Table, Unique

__all__ = ["Byline", "Entry", "Grown", "Indexed", "Moved", "Named", "Noted", "Plain", "Retyped", "Split", "Typed"]


class Entry(msgspec.Struct, frozen=True):
    title: str
    author: str


class Typed(msgspec.Struct, frozen=True):
    title: str
    author: str
    letters: int


class Byline(NamedTuple):
    author: str
    number: str


class Plain(Layout, root="/f/"):
    entries = Table("entries/{number}", key=str, value=Entry)
    notes = Table("notes/{note}", key=str, value=str)


class Moved(Layout, root="/f/"):
    entries = Table("articles/{number}", key=str, value=Entry)
    notes = Table("notes/{note}", key=str, value=str)


class Named(Layout, root="/f/"):
    """The articles are called so."""

    articles = Table("articles/{number}", key=str, value=Entry)
    notes = Table("notes/{note}", key=str, value=str)


class Grown(Named, root="/f/"):
    """A table is new, which needs no run."""

    loans = Table("loans/{loan}", key=str, value=str)


class Indexed(Layout, root="/f/"):
    articles = Table("articles/{number}", key=str, value=Entry)
    by_title = Unique("titles/{title}", of=articles, key=str)
    by_author = Index("authors/{author}/{number}", of=articles, key=str)
    notes = Table("notes/{note}", key=str, value=str)


class Noted(Layout, root="/f/"):
    """The notes are gone."""

    articles = Table("articles/{number}", key=str, value=Entry)
    by_title = Unique("titles/{title}", of=articles, key=str)
    by_author = Index("authors/{author}/{number}", of=articles, key=str)


class Retyped(Layout, root="/f/"):
    """A field without a default is new."""

    articles = Table("articles/{number}", key=str, value=Typed)
    by_title = Unique("titles/{title}", of=articles, key=str)
    by_author = Index("authors/{author}/{number}", of=articles, key=str)


class Split(Layout, root="/f/"):
    """The author is in the key."""

    articles = Table("by/{author}/{number}", key=Byline, value=Typed)
    by_title = Unique("by-titles/{title}", of=articles, key=str)
