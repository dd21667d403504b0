"""The adapters, one module a framework: see `base.py`."""
