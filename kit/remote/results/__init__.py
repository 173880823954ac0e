"""What runs made: reader.py reads it on the hosts, far.py starts that, and store.py writes it on this machine."""
