"""How a data set comes onto the host: where from, download, unpack, prepare, verify. `kit.datasets` is the entrance."""
