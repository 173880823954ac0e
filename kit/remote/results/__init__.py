"""What runs made: the reader reads it on the hosts, far.py starts that, and store.py writes it here."""
