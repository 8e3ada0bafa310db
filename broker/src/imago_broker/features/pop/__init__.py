"""POP consumption: the broker keeps what each group has taken and not acknowledged yet.

`popping` decides, and knows no loop and no log. `service` keeps what is out, `reading` takes
messages out of queues, `waiting` holds requests until some come, `room` tells who could take no
more when it can, `request_modes` says which groups pop, `renewals` keeps out what push consumers of
RocketMQ 5's SDKs work on. `pop_requests`, `receipts`, `assignments` and `lite_topics` answer
RocketMQ's clients; `feature` plugs all of it into a broker.
"""
