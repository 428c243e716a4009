#!/bin/sh
# Prints the path of a Python of a version, such as 3.12: from PATH, else from those of pyenv; nothing if there is none.
for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$candidate" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" >/dev/null 2>&1; then
        "$candidate" -c 'import sys; print(sys.executable)'
        exit
    fi
done
