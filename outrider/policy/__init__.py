"""What is decided: admission, politeness, retry, priority.

Pure functions from values (state, clock, settings) to values, over the model only.
"""
