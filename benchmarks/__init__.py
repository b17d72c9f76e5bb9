"""How fast keyplan is, as ratios measured in one run against hand-written code on py-lmdb that writes the same bytes.

`python -m benchmarks --help`. The figures that were reached, and where the rest goes: docs/design/performance.md.
"""
