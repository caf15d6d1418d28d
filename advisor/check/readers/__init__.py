"""One file to facts, a module for each kind of file. Nothing here looks at a second file, and no input makes it fail."""
