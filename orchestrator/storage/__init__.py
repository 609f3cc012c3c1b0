"""Where files are: the paths on this machine, and the checkpoint store that every node reaches."""
