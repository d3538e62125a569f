"""What the suites share: a real server, waiting with a bound, and counting what a machine holds."""
