"""What people start: flows, their command line, and the servers they run on."""

import logging

logging.getLogger("crossgrade").setLevel(logging.INFO)  # progress is for people; Prefect shows it on a run's page
