"""The versions, each named by its number and what it brings."""
