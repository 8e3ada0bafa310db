"""Outdated pods: whether one may be restarted now, which, and where a template is tried first."""
