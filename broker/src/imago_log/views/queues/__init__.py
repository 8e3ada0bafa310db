"""All queues of a store: found when they are asked for, written behind, made again from the log.

A queue's files may hold more than the log: a kill, a cut or an earlier topic of its name leaves
units behind. So each is loaded against a limit, the log offset below which files count
(`queue_loading`), and its newest unit has to name a record that the log has. What is missing then
is read from the log and added (`refilling`); what cannot be explained throws the views away, never
a message.

Ten thousand queues must cost no more a turn than ten: units wait in memory, where readers find
them, and a round writes a bounded number of queues (`queue_writing`). First files are made by the
worker (`first_files`). The checkpoint's mark is the least log offset of a unit that is not written,
taken before a sync begins: it may promise too little, and never too much (`queues_view`).
"""
