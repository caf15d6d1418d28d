"""What launchers start: they want a file, and a file inside a package would put its siblings on the import path."""

from advisor.execute.worker.main import main

if __name__ == "__main__":
    main()
