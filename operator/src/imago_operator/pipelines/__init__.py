"""ImagoPipeline: desired state, actual state, plan and status."""
