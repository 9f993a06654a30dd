"""The face of `mirrorlake.config.mm2`: what other rooms use of it; its modules are its own."""

from mirrorlake.config.mm2.importer import import_mm2 as import_mm2
