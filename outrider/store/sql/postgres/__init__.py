"""PostgreSQL, 14 to 18: pooled connections, and the text of every statement.

Statements over many rows take one array per column and unnest them, so that any number of rows costs
one round trip.
"""
