"""`python -m armillary` is `armillary`."""

from armillary.cli import main

if __name__ == "__main__":
    main()
