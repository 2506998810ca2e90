"""The scripts of the control plane.

Locks are always taken in one order, which continues that of the URL plane:

    crawl_jobs (by id) -> crawls -> all that is in them -> crawl_runs
    gates (by domain)  -> domains (by name), and nothing after them
    backfills (by id)  before the domains and gates that they bring
    outbox             last of all

`claim_domains` and `claim_job`, waking domains and recalculating them stand outside this order and therefore
never wait: they skip what somebody else holds. Where a rule spans rows that may not exist yet, a lock on a
name comes first: of a key for its quotas, then of the crawl for its one live job; of all workers for their
one mode, of a topic for the order of its messages.

Moments are datetimes in records and milliseconds in statements' values; `rows` converts.

An engine runs a script again when it cannot know whether its transaction was committed. What must not
be done twice is recognised: by an id that the caller made, by a version or epoch, or, in scripts that
take `earlier`, by what an earlier run of the same call was about to commit.
"""
