"""Codecs: their bytes, their languages, their order; and the forms of values."""
