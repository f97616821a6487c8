"""Recent events in the metadata: elections, changes of in-sync sets, fencing. One readable line each, for the log and the page /ui."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.late_dataclass import dataclass

if TYPE_CHECKING:
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage, PartitionRegistration

EVENTS_MAX = 500


@dataclass(frozen=True, slots=True)
class Event:
    """`kind`: election, isr, broker, topic. `wall_ms`: when this node applied it. `partition`: -1 if it concerns no partition."""

    wall_ms: int
    kind: str
    topic: str
    partition: int
    text: str


class Timeline:
    """Keeps the last events. Subscribe `on_metadata` to a MetadataHost."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.unclean_elections = 0
        self._fenced: dict[int, bool] = {}

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Note the differences between the changed entries and their previous values."""
        for broker_id, broker in delta.changed_brokers.items():
            before = self._fenced.get(broker_id)
            if broker is None:
                self._fenced.pop(broker_id, None)
                self._note("broker", "", -1, f"broker {broker_id} is unregistered")
            elif broker.fenced != before:
                self._fenced[broker_id] = broker.fenced
                if broker.fenced and before is not None:
                    self._note("broker", "", -1, f"broker {broker_id} is fenced: it has stopped or was silent for too long")
                elif not broker.fenced:
                    self._note("broker", "", -1, f"broker {broker_id} is in service")
        for topic in delta.changed_topics.values():
            if topic.is_new:
                count = len(topic.changed)
                self._note("topic", topic.name, -1, f"{topic.name} has {count} partition{'s' if count != 1 else ''}")
                continue
            # Of very many changes only the last ones would be kept.
            untold = len(topic.previous) - EVENTS_MAX
            for number, (index, old) in enumerate(topic.previous.items()):
                now = topic.changed[index]
                if number >= untold:
                    self._changed(topic.name, index, old, now)
                elif now.leader != old.leader and now.elected_unclean_after(old):
                    self.unclean_elections += 1

    def _changed(self, topic: str, index: int, old: PartitionRegistration, now: PartitionRegistration) -> None:
        name = f"{topic}-{index}"
        if now.leader != old.leader:
            if now.leader < 0:
                text = f"{name}: no leader; broker {old.leader} is gone, and no in-sync replica can take over"
            elif now.elected_unclean_after(old):
                self.unclean_elections += 1
                text = f"{name}: broker {now.leader} leads in epoch {now.leader_epoch}, after an unclean election: records may be lost"
            elif old.leader < 0:
                text = f"{name}: broker {now.leader} leads in epoch {now.leader_epoch}, after there was no leader"
            else:
                text = f"{name}: broker {now.leader} leads in epoch {now.leader_epoch}, after broker {old.leader}"
            self._note("election", topic, index, text)
        if set(now.isr) != set(old.isr):
            gone, come = sorted(set(old.isr) - set(now.isr)), sorted(set(now.isr) - set(old.isr))
            parts = [f"removed {', '.join(map(str, gone))}"] if gone else []
            parts += [f"added {', '.join(map(str, come))}"] if come else []
            self._note("isr", topic, index, f"{name}: in sync {', '.join(map(str, now.isr)) or 'none'} ({'; '.join(parts)})")

    def _note(self, kind: str, topic: str, partition: int, text: str) -> None:
        self.events.append(Event(self._wall_ms(), kind, topic, partition, text))
