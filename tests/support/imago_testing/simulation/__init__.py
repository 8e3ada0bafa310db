"""A seeded world around the real leadership core: clock, network, coordinator and disks of ours."""
