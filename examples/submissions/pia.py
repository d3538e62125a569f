# Waits for somebody who never comes.
import time

time.sleep(3600)
