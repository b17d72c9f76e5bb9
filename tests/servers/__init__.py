"""Real servers for tests: each a process of its own on free ports of this machine, stopped by its process id."""
