"""The grammar shelf: `kvp.lark`, and the editor grammars made from the word tables."""
