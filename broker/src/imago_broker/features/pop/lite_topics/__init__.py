"""Lite topics: light queues below a topic of the type LITE, which clients take up one by one.

Clients say which they want, and again every half minute: who has not for three minutes wants none.
Nothing of it is stored: after a change of masters clients say it to the next one. `wants` knows it,
`requests` takes it and hands messages out.

A client may want thousands of which a few have messages: only those in which something has happened
since it looked last are looked at. Whatever a client says counts as that for all that it wants.
Each lite topic is consumed in order: nothing more of it is handed out to a group while a message of
it is out.
"""
