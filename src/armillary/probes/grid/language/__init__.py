"""Sentences in which one word depends on another: how they are made, read and attended."""
