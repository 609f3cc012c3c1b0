"""Reports of a sweep: in a terminal, in Markdown and as one HTML file."""
