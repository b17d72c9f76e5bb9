"""The JSON gateway: beside a real etcd, and what only a gateway over a store has."""
