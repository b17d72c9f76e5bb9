"""What the etcd engine does beyond the conformance suite: servers that fail, etcdctl beside it, TLS and users."""
