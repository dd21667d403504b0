"""What runs inside a container: specifications, adapters, the proof and the measuring worker. Never imports `kit`."""
