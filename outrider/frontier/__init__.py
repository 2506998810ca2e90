"""The brain: add, lease, renew and report over the two planes, and the clock.

It never opens a connection to a crawled site and never reads a body: import-linter forbids it the
modules that could.
"""
