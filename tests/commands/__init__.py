"""The commands, each as a process."""
