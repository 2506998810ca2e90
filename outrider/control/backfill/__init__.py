"""Backfill: taking over what other crawlers knew.

    rows     a crawl log and its provenance, in tables, CSV or JSON lines
               --> workbench: summed up by canonical domain, in a file beside the store
               --> store: what is missing of each domain, with the ledger, batch by batch
    URLs     the queue of a Scrapy job, a dump of a URLFrontier
               --> store: tasks of a crawl that are not there yet, batch by batch

Reading knows how far it came, and adding what it has added. So a backfill that was killed goes on, and one that is
repeated changes nothing.
"""
