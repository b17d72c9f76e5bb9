"""A cluster of one major version of PostgreSQL becomes one of another: other nodes, on the same cells, made from its data.

records.py says what such a cluster is made from; script.py what is run beside PostgreSQL; node_upgrades.py what a cell does on
a node; plans.py and steps.py what the broker does. Halting, the former cluster and the way back are those of a restore in
place, in the package `backups`.
"""
