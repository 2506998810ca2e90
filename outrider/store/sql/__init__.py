"""Both planes on SQL: one set of transaction scripts, two dialects.

A *script* is a generator that yields the name of a statement with its values and receives the rows;
it neither knows nor cares which engine runs it. `sqlite` and `postgres` each hold an engine that runs
scripts in transactions and a catalogue with the text of every statement.
"""
