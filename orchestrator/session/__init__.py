"""The decisions of a sweep: which trial is tried next, and what each outcome means."""
