from functools import reduce
from operator import add

with open(0) as numbers:
    print(reduce(add, map(int, numbers)))
