"""Values to ordered bytes and back: the elements that keys are made of, and the forms that records are stored in."""
