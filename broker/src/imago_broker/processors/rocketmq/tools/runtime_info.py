"""The figures that `mqadmin clusterList` and `brokerStatus` show."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.service.figures import figure_history
from imago_log.errors import StoreError
from imago_wire.errors import ProtocolError
from imago_wire.records.record import decode_record
from imago_wire.remoting.peer import OWN_VERSION, version_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.ports import Clock
    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.figures.figure_history import FigureHistory
    from imago_broker.service.figures.traffic import Traffic
    from imago_broker.service.puts.messages import MessageService
    from imago_log.store import MessageStore

_LANES = {
    "send": "send",
    "pull": "pull",
    "query": "query",
    "litePull": "pull",
    "ack": "client",
}
"""What the tools show as thread pools, and the class of requests that it is here."""
_NO_POOL = str(2**31 - 1)


@dataclass(slots=True, eq=False, kw_only=True)
class RuntimeFigures:
    """The figures of one broker."""

    store: MessageStore
    messages: MessageService
    traffic: Traffic
    delay: DelayService
    history: FigureHistory
    lanes: Mapping[str, Lane]
    clock: Clock
    started_ms: int

    def table(self) -> dict[str, str]:
        """Return RocketMQ's table of figures; all values are text.

        4.9's tools read `getTransferedTps`, 5.x's `getTransferredTps`: both are written. Counters
        and times run from the start of the process.
        """
        seconds = max(1, (self.clock.epoch_ms() - self.started_ms) // 1000)
        return {
            "brokerVersionDesc": version_name(OWN_VERSION),
            "brokerVersion": str(OWN_VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(self.started_ms),
            "runtime": _runtime(seconds),
            **self._puts(),
            **self._gets(),
            **self._log(),
            **self._timers(),
            **self._thread_pools(),
            **{
                f"scheduleMessageOffset_{level}": f"{place},{end}"
                for level, (place, end) in self.delay.offsets().items()
            },
        }

    def _puts(self) -> dict[str, str]:
        messages, days = self.messages, self.history.put_days
        put, times = messages.appended, messages.append_times
        return {
            "msgPutTotalYesterdayMorning": str(days.yesterday_morning),
            "msgPutTotalTodayMorning": str(days.today_morning),
            "msgPutTotalTodayNow": str(put),
            "putMessageTimesTotal": str(put),
            "putMessageFailedTimes": str(messages.failed),
            "putMessageSizeTotal": str(messages.appended_bytes),
            "putMessageAverageSize": str(messages.appended_bytes / put if put else 0.0),
            "putMessageEntireTimeMax": str(times.max_ms),
            "putMessageDistributeTime": times.distribution(),
            "putLatency99": f"{times.percentile(0.99):.1f}",
            "putLatency999": f"{times.percentile(0.999):.1f}",
            "putTps": self._rate(figure_history.PUT),
        }

    def _gets(self) -> dict[str, str]:
        traffic, days = self.traffic, self.history.get_days
        delivered = self._rate(figure_history.DELIVERED)
        return {
            "msgGetTotalYesterdayMorning": str(days.yesterday_morning),
            "msgGetTotalTodayMorning": str(days.today_morning),
            "msgGetTotalTodayNow": str(traffic.messages),
            "getMessageEntireTimeMax": str(traffic.read_ns_max // 1_000_000),
            "getFoundTps": self._rate(figure_history.FOUND),
            "getMissTps": self._rate(figure_history.MISSED),
            "getTotalTps": self._rate(figure_history.FOUND, figure_history.MISSED),
            "getTransferedTps": delivered,
            "getTransferredTps": delivered,
        }

    def _log(self) -> dict[str, str]:
        store, folder = self.store, self.store.config.data_dir
        disk = shutil.disk_usage(folder)
        ratio = str(disk.used / disk.total if disk.total else 0.0)
        return {
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "startAcceptSendRequestTimeStamp": "0",
            "remainTransientStoreBufferNumbs": _NO_POOL,
            "remainHowManyDataToCommit": "0 B",
            "remainHowManyDataToFlush": f"{store.log_end - store.durable_end} B",
            "commitLogMinOffset": str(store.log_start),
            "commitLogMaxOffset": str(store.log_end),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{folder}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {disk.total} B, Free : {disk.free} B.",
        }

    def _timers(self) -> dict[str, str]:
        """Timers are taken in and given out as they come: nothing is read behind, or held up."""
        rates = self.history.rates
        return {
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": f"{max(0.0, rates(figure_history.TIMERS_IN)[0]):.2f}",
            "timerDequeueTps": f"{rates(figure_history.TIMERS_OUT)[0]:.2f}",
        }

    def _thread_pools(self) -> dict[str, str]:
        table = {}
        for name, lane_name in _LANES.items():
            lane = self.lanes[lane_name]
            table[f"{name}ThreadPoolQueueSize"] = str(lane.running)
            table[f"{name}ThreadPoolQueueCapacity"] = str(lane.running_max)
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        lane = self.lanes["transaction"]
        table["EndTransactionQueueSize"] = str(lane.running)
        table["EndTransactionThreadPoolQueueCapacity"] = str(lane.running_max)
        return table

    def _rate(self, *places: int) -> str:
        """Return the three rates that the tools expect: of 10 s, 1 min, 10 min."""
        return " ".join(f"{max(0.0, rate):.2f}" for rate in self.history.rates(*places))

    def _earliest_ms(self) -> int:
        """Return when the oldest record came; -1 for none."""
        store = self.store
        try:
            size = int.from_bytes(bytes(store.read_log(store.log_start, 4)), "big")
            record = bytes(store.read_log(store.log_start, size))
            return decode_record(record, verify=False).store_ms
        except (ProtocolError, StoreError):
            return -1


def _runtime(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
