"""The laboratory's claims and studies as text."""
