"""HTTP API of the service, server-sent events, and the page in the browser."""
