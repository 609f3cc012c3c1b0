"""Pictures of a sweep: each a pure function of its history, so that what is drawn can be compared with it."""
