"""Are the documents true?"""
