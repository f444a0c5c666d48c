"""How a wrong value relates to the right one."""
