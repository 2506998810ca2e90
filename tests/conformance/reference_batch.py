"""Batch mode as simply as it can be said, to compare the stores with: no index, no lock, no waking.

Moments are whole seconds in milliseconds, as on the wire; the order among equal dates is then that of insertion.
"""

from collections import Counter
from typing import NamedTuple

from outrider.model.batch import QueueChange


class ReferenceTask:
    """A URL: done where it has no date, in flight until `held_until`."""

    def __init__(self, place: int, date: int | None) -> None:
        self.place = place
        self.date = date
        self.held_until = 0


class ReferenceQueue:
    """A queue with its overrides."""

    def __init__(self) -> None:
        self.tasks: dict[str, ReferenceTask] = {}
        self.settings: dict[str, int | None] = {"delay_ms": None, "blocked_until": None, "page_limit": None}
        self.last_served_at: int | None = None


class Expected(NamedTuple):
    """How many tasks stand how."""

    waiting: int
    in_flight: int
    done: int


class ReferenceFrontier:
    """One crawl."""

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.queues: dict[str, ReferenceQueue] = {}
        self._inserted = 0

    def queue(self, key: str) -> ReferenceQueue:
        return self.queues.setdefault(key, ReferenceQueue())

    def change(self, key: str, change: QueueChange) -> None:
        for name in self.queue(key).settings:
            value = getattr(change, name)
            if value is None or isinstance(value, int):
                self.queue(key).settings[name] = value

    def discover(self, key: str, url: str, now: int) -> bool:
        if url in self.queue(key).tasks:
            return False
        self._insert(key, url, now)
        return True

    def know(self, key: str, url: str, date: int | None) -> bool:
        task = self.queue(key).tasks.get(url)
        if task is None:
            self._insert(key, url, date)
            return True
        task.date, task.held_until = date, 0
        return False

    def _insert(self, key: str, url: str, date: int | None) -> None:
        self._inserted += 1
        self.queue(key).tasks[url] = ReferenceTask(self._inserted, date)

    def offers(self, now: int, per_queue: int) -> dict[str, list[str]]:
        """Give what each queue would be served with."""
        offers = {key: self._offer(queue, now)[:per_queue] for key, queue in self.queues.items()}
        return {key: urls for key, urls in offers.items() if urls and self._may_give(key, now, per_queue)}

    def _offer(self, queue: ReferenceQueue, now: int) -> list[str]:
        due = [
            (task.date, task.place, url)
            for url, task in queue.tasks.items()
            if task.date is not None and task.date <= now and task.held_until <= now
        ]
        return [url for _, _, url in sorted(due)]

    def _may_give(self, key: str, now: int, per_queue: int) -> bool:
        queue = self.queues[key]
        delay, blocked_until, limit = queue.settings.values()
        waits_until = 0 if queue.last_served_at is None else queue.last_served_at + (
            self.delay_ms if delay is None else delay
        )  # fmt: skip
        counts = self.counts(now, key)
        has_room = counts.in_flight < per_queue and (limit is None or counts.done < limit)
        return has_room and waits_until <= now and (blocked_until or 0) <= now

    def serve(self, key: str, urls: list[str], now: int, lease_ms: int) -> None:
        self.queue(key).last_served_at = now
        for url in urls:
            self.queue(key).tasks[url].held_until = now + lease_ms

    def counts(self, now: int, *keys: str) -> Expected:
        kinds = Counter(
            "done" if task.date is None else "in_flight" if task.held_until > now else "waiting"
            for key in keys or self.queues
            for task in self.queues[key].tasks.values()
        )
        return Expected(kinds["waiting"], kinds["in_flight"], kinds["done"])
