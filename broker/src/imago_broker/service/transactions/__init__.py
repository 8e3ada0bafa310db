"""Transactions of RocketMQ's producers.

`service` is what the processors call; `half_messages` makes the records, `outcome_writer` writes
how transactions end, `transaction_log` reads what is open from the log, `checks` asks producers.
"""
