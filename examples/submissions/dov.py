# Reaches past the end.
import sys

numbers = [int(line) for line in sys.stdin]
print(sum(numbers[each] for each in range(len(numbers) + 1)))
