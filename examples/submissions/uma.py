# Keeps everything, ten megabytes at a time.
everything = []
while True:
    everything.append(bytearray(10_000_000))
