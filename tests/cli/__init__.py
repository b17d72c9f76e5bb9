"""The command line: what each command prints, how it fails, its exit codes, its speed of starting."""
