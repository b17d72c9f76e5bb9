"""A registry behind HTTP is used like one in the store."""
