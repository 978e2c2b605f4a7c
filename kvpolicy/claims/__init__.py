"""Who wants which prefix kept, how strongly and until when: directives and calls become strengths in the pool."""
