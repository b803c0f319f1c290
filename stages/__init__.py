"""The toolkit: a step as a program, and stages that rewrite it."""
