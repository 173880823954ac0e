"""Stand-ins for the outside world: facts made by hand, VMs in memory, and a reporter that remembers."""
