"""Reads hosts again and again: one connection to each, and a program there that prints readings."""
