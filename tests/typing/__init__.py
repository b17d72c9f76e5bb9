"""What type checkers tell users: `cases/` holds code with planted mistakes, the harness compares line by line."""
