"""Words and pure maths that every room shares; imports nothing of ours."""
