"""Where state rests: the protocols `UrlStore` and `ControlStore` and their implementations.

Stores execute; what they execute is decided in `policy`. `open_store` is the way in.
"""
