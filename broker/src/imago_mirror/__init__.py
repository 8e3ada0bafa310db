"""Copies topics of one cluster to another, each message once and in its queue's order.

`core` decides: what of a pull is copied, which numbers and which origin it gets, where a queue goes
on after a restart, where groups go on at the target. The modules beside it carry that out over
`imago_client`. What a message's copy says of where it came from is the truth that everything else
is made from again: `core.origins`.
"""
