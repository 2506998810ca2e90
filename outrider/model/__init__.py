"""What things are: URL, task, gate, domain, job, lease, artifact, and the state machines.

Pure values and pure functions; no input, no output, no clock. Every other room may import this
one; it imports none of them.
"""
