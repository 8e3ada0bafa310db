"""Subjects that plug in: a folder each, with everything that only it needs.

`catalogue` is the one list of them; `feature` says what a subject brings along. A new request code,
its right, a metric or a hook of such a subject is written in its folder and nowhere else.
"""
