"""Workers in a Ray cluster, in the place of processes on this machine."""
