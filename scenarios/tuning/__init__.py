"""Finds the settings with which a framework trains a scenario fastest on this machine."""
