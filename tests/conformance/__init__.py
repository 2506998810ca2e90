"""What every store must do, whatever it is built on.

A future backend joins by one line in `backends.BACKENDS`.
"""
