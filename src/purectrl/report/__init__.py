"""The HTML page that shows and compares runs. It reads run directories only."""
