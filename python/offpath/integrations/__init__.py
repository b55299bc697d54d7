"""Offpath inside other projects' programs. Each module needs the project that it is named for."""
