"""Transactions of MetaQ's producers, local and XA.

`service` is what the processors call; `writer` writes their records, `transaction_log` reads them
back, `notes` keeps what a later leader has to know.
"""
