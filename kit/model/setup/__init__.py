"""`kit setup` as data: what a bare VM has, the steps that make it ready, and what came of them."""
