"""The service over HTTP: an API for programs, server-sent events, and a page for people."""
