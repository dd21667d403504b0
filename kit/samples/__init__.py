"""What the sampler reads of the machine, a module a source."""
