"""What kit top shows: rows of hosts, GPUs and ranks, their order, and what keys do. Pure."""
