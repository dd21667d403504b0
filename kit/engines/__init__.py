"""The engines: what can run a worker in an isolated environment."""
