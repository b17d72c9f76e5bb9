"""The documented systems, each on keyplan's public names only."""
