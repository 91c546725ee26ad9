"""What the three relays share: see examples/relays/README.md. core.py is where to start reading."""
