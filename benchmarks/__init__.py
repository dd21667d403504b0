"""Measure the overhead of the kit and the quality of its numbers. See README.md in this folder."""
