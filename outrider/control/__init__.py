"""The watch: jobs from the order to the end.

    supervisor --claims--> job --prepares--> crawl --hands over--> runner, a process of its own
        |                                                             |
        +--beats, hears wishes, watches, ends <--- lines of JSON -----+

A supervisor lives in one process and has runners in others, so that no page can take it down. Whatever dies, the
watchdog of any supervisor finds the job and gives it to the next runner; the epoch of a job sees to it that nobody of
before can change anything.
"""
