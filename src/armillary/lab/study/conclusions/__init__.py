"""What does a study say? Differences of paired runs, verdicts on the laboratory's claims, and stored ones."""
