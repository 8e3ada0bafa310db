"""Backups of a cluster in a bucket or folder, and data folders made of them.

A backup is the bytes of each shard's log up to a cut, and the little that is nowhere in the log. It
is kept as chunks, which are named by what they hold, so that backups share what they have in
common, and manifests, which say which chunks make up the log (docs/formats/backup.md):

    format      what is in a bucket: names, manifests, chunks
    shelf       which backups there are; what belongs to each
    uploading   a member's part in a backup: chunks, then the shard's manifest
    completing  the backup's own manifest, once all shards have theirs
    sweeping    old backups, and chunks that no backup names
    reading     chunks back, one after the other, each record checked
    verifying   what is wrong with a backup
    restoring   a data folder made of a shard's backup

The log is copied and never interpreted: whatever a shard knows is in it.
"""
