"""What `kit setup` does on a VM: one shell script for each kind of step, and the reader of a host's state."""
