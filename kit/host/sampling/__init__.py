"""What the host sees of itself while a launch runs: the sampler, and a module for each source that it reads."""
