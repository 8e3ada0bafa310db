"""The figures that `mqadmin clusterList` and `brokerStatus` show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.remoting.peer import OWN_VERSION, version_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.service.delay import DelayService
    from imago_broker.service.messages import MessageService
    from imago_broker.service.traffic import Traffic
    from imago_log.store import MessageStore

_QUEUES = ("send", "pull", "query", "litePull", "ack")


class RuntimeFigures:
    """The figures of one broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        messages: MessageService,
        traffic: Traffic,
        delay: DelayService,
        lanes: Mapping[str, Lane],
        clock: Clock,
        started_ms: int,
    ) -> None:
        """`lanes` by their names: what the tools show as thread pools."""
        self._store = store
        self._messages = messages
        self._traffic = traffic
        self._delay = delay
        self._lanes = lanes
        self._clock = clock
        self._started_ms = started_ms

    def table(self) -> dict[str, str]:
        """Return RocketMQ's table of figures; all values are text.

        4.9's tools read `getTransferedTps`, 5.x's `getTransferredTps`: both are written. Counters
        run from the start of the process.
        """
        store, messages, traffic = self._store, self._messages, self._traffic
        now_ms = self._clock.epoch_ms()
        seconds = max(1, (now_ms - self._started_ms) // 1000)
        put, got = messages.appended, traffic.messages
        delivered_rate = _rate(got, seconds)
        table = {
            "brokerVersionDesc": version_name(OWN_VERSION),
            "brokerVersion": str(OWN_VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(self._started_ms),
            "runtime": _runtime(seconds),
            "msgPutTotalYesterdayMorning": "0",
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalTodayNow": str(put),
            "msgGetTotalYesterdayMorning": "0",
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalTodayNow": str(got),
            "putMessageTimesTotal": str(put),
            "putMessageFailedTimes": "0",
            "putTps": _rate(put, seconds),
            "getFoundTps": delivered_rate,
            "getMissTps": _rate(0, seconds),
            "getTotalTps": delivered_rate,
            "getTransferedTps": delivered_rate,
            "getTransferredTps": delivered_rate,
            "dispatchBehindBytes": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self._started_ms),
            "startAcceptSendRequestTimeStamp": "0",
            "remainTransientStoreBufferNumbs": str(2**31 - 1),
            "remainHowManyDataToCommit": "0 B",
            "remainHowManyDataToFlush": f"{store.log_end - store.durable_end} B",
            "commitLogMinOffset": str(store.log_start),
            "commitLogMaxOffset": str(store.log_end),
            "commitLogDiskRatio": "0.0",
            "consumeQueueDiskRatio": "0.0",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "0",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
        table.update(self._thread_pools())
        for level, (place, end) in self._delay.offsets().items():
            table[f"scheduleMessageOffset_{level}"] = f"{place},{end}"
        return table

    def _thread_pools(self) -> dict[str, str]:
        table = {}
        for name in _QUEUES:
            lane = self._lanes.get("pull" if name == "litePull" else name)
            table[f"{name}ThreadPoolQueueSize"] = str(lane.running if lane else 0)
            table[f"{name}ThreadPoolQueueCapacity"] = str(lane.running_max if lane else 0)
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return table


def _rate(count: int, seconds: int) -> str:
    """Return the three rates that the tools expect (10 s, 1 min, 10 min): the mean, three times."""
    rate = f"{count / seconds:.2f}"
    return f"{rate} {rate} {rate}"


def _runtime(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
