"""The asynchronous twin: the synchronous store's scenarios run on it unchanged, and what is its own."""
