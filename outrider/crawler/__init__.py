"""The hands: fetch, robots, sitemaps, parse, content store, hand-off, the worker loop."""
