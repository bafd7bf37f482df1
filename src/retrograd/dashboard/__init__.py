"""The dashboard: looks at run folders, writes nothing, imports no other room."""
