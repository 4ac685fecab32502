"""Tests of kbenv; a package, so that every test module can say `from tests.fakes import ...`."""
