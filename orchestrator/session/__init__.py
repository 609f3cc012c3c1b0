"""One run of a sweep: what is tried next, and what each result means."""
