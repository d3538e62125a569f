"""Images for the template suites: made here, pushed to a registry on loopback."""
