"""The only room that knows Gymnasium and the Atari emulator."""
