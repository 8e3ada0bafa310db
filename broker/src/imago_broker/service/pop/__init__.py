"""POP consumption: the broker keeps what each group has taken and not acknowledged yet.

`service` keeps that, `reading` takes messages out of queues, `waiting` holds requests until some
come, `room` tells who could take no more when it can, `request_modes` says which groups pop.
"""
