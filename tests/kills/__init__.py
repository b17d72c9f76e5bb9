"""Long acts ended at each engine call in each way, and given again by another process."""
