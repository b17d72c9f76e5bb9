"""How long the ways are: the frames of ours that each usual operation passes through."""
