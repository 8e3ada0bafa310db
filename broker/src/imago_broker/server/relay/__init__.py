"""A client's connection whose requests the new master of the shard answers.

After a planned change of master clients still know the former one, some for half a minute. It does
not refuse them: each of their connections gets a relay to the new master. A connection may change
hands only between two whole requests and two whole answers; so ledgers cut both streams and keep
account of what was asked and not answered (`relay_ledgers`). When the connection to the master
breaks, that is refused: nobody else will answer it.

The client notices nothing but a little time. A relay ends when its client leaves or goes to the
master itself, and hands the connection back where this broker leads again (`relay_handover`).
"""
