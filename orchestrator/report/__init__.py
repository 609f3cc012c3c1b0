"""Reports: what people see of a sweep, in a terminal, as Markdown and as one HTML file."""
