"""The benchmarks: that they run, and compare what is equal."""
