"""`python -m studio` is `chakra-studio`."""

from studio.cli import main

main()
