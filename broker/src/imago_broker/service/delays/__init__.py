"""Messages that are delivered later: delay levels, timers with a time of their own.

`parking` makes the records that wait and `restoring` the messages that come of them; `levels`
delivers RocketMQ's 18 levels in order, `timers` what names its own time. `waiting_messages` tells
who asks what waits.
"""
