"""kit setup: bare VMs become hosts on which kit deploy works."""
