"""The adapter shelf: one engine a module, loaded by entry point (`kvpolicy.adapters`)."""
