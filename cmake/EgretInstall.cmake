# Installation rules: see docs/install.md.
