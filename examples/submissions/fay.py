# Forgets the last number.
import sys

numbers = [int(line) for line in sys.stdin]
print(sum(numbers[:-1]))
