"""The v2 keys API: recorded answers, real etcd beside it, and what only a gateway over a store has."""
