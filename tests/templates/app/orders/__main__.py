import ctypes
import os
import sys

import bottle
import itsdangerous

fast = ctypes.CDLL("/usr/local/lib/libfast.so")


@bottle.get("/health")
def health():
    return {"ok": True}


@bottle.get("/")
def index():
    return {
        "twice": fast.twice(21),
        "release": os.environ["RELEASE"],
        "user": os.getuid(),
        "signed": itsdangerous.__version__,
        "folder": os.getcwd(),
    }


bottle.run(host="0.0.0.0", port=int(sys.argv[sys.argv.index("--port") + 1]), quiet=True)
