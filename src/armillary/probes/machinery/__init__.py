"""What every probe shares: the contract, the shared pass, evidence, the bench, the plan and the thresholds."""
