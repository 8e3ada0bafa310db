"""Consumer groups: settings, members, offsets, locks, polls that wait."""
