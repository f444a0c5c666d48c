"""Files and JSON that others write or read: logs, reports, configurations, case files."""
