"""Opening, housekeeping, closing.

How the last process ended says what a start may believe. After an order to stop all is synced.
After a kill the page cache is whole: only the last write may be torn. After a loss of power each
part of what was not synced may be there or not. A tail that is explained so is cut; anything else
that is wrong lies below acknowledged messages and is damage (the table is in `recovery`).

While the store runs, its own thread decides, once a second, and a worker does what is slow, by jobs
that hold all they need. Files go only from the front, and before one goes what it alone says of
topics and queues is written to the log again: so the log that is left is always enough.
"""
