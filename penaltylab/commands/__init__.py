"""The commands: one verb a module, imported when it is called."""
