"""The scripts of the URL plane.

Locks are always taken in one order, so that no mix of operations can deadlock:

    crawls -> leases (by token) -> URLs of robots.txt (by hash)
           -> tasks inserted (by key) -> domains, gates, queues inserted (by key)
           -> gates (by domain) -> leases deleted or inserted -> tasks updated -> revisits
           -> queues (by crawl, key) -> counts (by scope) -> domains updated (by name)

Only who has a domain's gate changes its life: its status, and what goes with it.

`lease` and `serve` stand outside this order and therefore never wait: they skip every queue, gate and robots.txt
that somebody else holds, and look at them again a moment later.
"""
