"""What pages are made of, and the page about any loop (`loop_report`); charts need `plot`."""
