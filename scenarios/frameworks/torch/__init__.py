"""The PyTorch adapter.

`model.py` is the stock lane, with `photos.py` as its data set of JPEG files. `tuned.py` is the tuned lane. The parts
that its settings choose are in `capture.py`, `compilers.py`, `feeds.py`, `layers.py` and `optimizers.py`.
"""
