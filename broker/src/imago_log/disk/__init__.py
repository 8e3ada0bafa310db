"""The operating system's side: files, the data folder, room on the disk."""
