"""What the kit costs and what its numbers are worth, measured: see README.md in this folder."""
