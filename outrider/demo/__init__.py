"""A synthetic web site to crawl, for the first run, the tests and the benchmarks."""
