"""The units of consume queues: in files, found, proved, lost."""
