"""Several runs seen together: published figures beside ours, and plots of both."""
