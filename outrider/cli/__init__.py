"""The desk: one module per command group."""
