"""What survives: failures at every step, killed processes, full disks, readers that died, layouts of two versions."""
