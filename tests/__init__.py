"""The tests. A package, so that one test module can import another's helpers as `tests.folder.module`."""
