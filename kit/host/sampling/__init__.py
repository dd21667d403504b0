"""Sample the host while a launch runs: the sampler, and one module for each source that it reads."""
