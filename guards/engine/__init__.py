"""The engine: the index of a tree, what its hot code reaches, and what the values there are."""
