"""Other people's crawlers: Scrapy, Crawlee."""
